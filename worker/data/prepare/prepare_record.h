// How far a data set has been made, as it is written beside it (worker/data/FORMAT.md, "Unfinished
// data sets").
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/status.h"
#include "worker/data/prepare/text_batch.h"

namespace mt::data {

// What a run must have in common with the one that it goes on with.
struct MadeOf {
  std::string options{};  // in words
  std::string inputs{};   // digest of names, sizes and times
  friend bool operator==(const MadeOf&, const MadeOf&) = default;
};

struct PrepareRecord {
  // The values are persistent.
  // kConsent: all was encoded, and is one document, which nobody has said is meant.
  enum class Phase { kEncode = 0, kReorder = 1, kPublish = 2, kConsent = 3 };

  MadeOf made_of{};
  Phase phase = Phase::kEncode;
  InputPosition position{};
  int64_t bin_bytes = 0;        // of the .bin that the phase writes
  int64_t documents = 0;        // that have ended
  int64_t empty_documents = 0;  // of them
  int64_t tokens = 0;           // the open document's included
  int64_t open_tokens = 0;      // of the document that has not ended
  int64_t placed = 0;           // documents in their new order, in kReorder
  bool reordered = false;       // in kPublish: the files are the reordered ones
};

// As JSON, and back. kDataLoss for a text that is no such record.
std::string RecordText(const PrepareRecord& record);
StatusOr<PrepareRecord> ParseRecord(std::string_view text);

// Replaces the record at `path`, by way of RecordDraft(path); it is on disk when this returns.
// Blocks. A kill leaves the old or the new one, and perhaps the draft.
Status WriteRecord(const std::string& path, const PrepareRecord& record);
std::string RecordDraft(const std::string& path);

}  // namespace mt::data
