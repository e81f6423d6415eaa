// A data set that is being made: tokens, the length of each document, and a record of how far both
// are on disk, from which a run that was killed goes on (FORMAT.md). One process at a time works on
// a prefix. Not thread-safe; calls may block on disk.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/status.h"
#include "worker/data/output_file.h"
#include "worker/data/prepare/prepare_record.h"
#include "worker/data/token_type.h"

namespace mt::data {

class RecordKeeper;

class PartialDataset {
 public:
  struct Args {
    std::string prefix{};
    TokenType type = TokenType::kU16;
    MadeOf made_of{};
    bool resumable = true;  // false: nothing is recorded, and what is there is begun anew
    bool restart = false;   // likewise, once
    int64_t record_every_bytes = 0;
  };
  // Opens what an earlier run has left, or begins anew, also where another run waits for consent.
  // kFailedPrecondition where another run (its inputs or options) was interrupted, or one is at
  // work.
  static StatusOr<std::unique_ptr<PartialDataset>> Open(const Args& args);
  // Keeps what is there, recorded as far as it goes.
  ~PartialDataset();
  PartialDataset(const PartialDataset&) = delete;
  PartialDataset& operator=(const PartialDataset&) = delete;

  // As far as the data set was made when it was opened, and is now.
  const PrepareRecord& record() const { return record_; }

  // The next tokens, of any documents.
  Status AddTokens(std::string_view tokens, int64_t count);
  // So many of them belong to the document that is open, or begins with them. kInvalidArgument if
  // that is more than the format holds.
  Status AddToDocument(int64_t count);
  // Ends it; one without tokens is a document without a sequence.
  Status EndDocument();
  // All that was added so far comes from the inputs before `position`.
  Status Reached(const InputPosition& position);

  // Orders the documents as `order` says, which gives the old number of each new one: a second pass
  // over all of them, which resumes too. `progress` gets the bytes done; false cancels.
  Status Reorder(const std::function<int64_t(int64_t)>& order,
                 const std::function<bool(int64_t bytes)>& progress);
  // All has been added, and stays for a run that says it is meant. Not where nothing is recorded.
  Status AwaitConsent();
  // Composes the .idx and moves both files into place; nothing else of this object is left.
  Status Publish();
  // Removes everything.
  void Discard();

 private:
  explicit PartialDataset(Args args);
  std::string Path(std::string_view ending) const { return args_.prefix + std::string(ending); }
  // The names of the files that the phase writes.
  std::string BinPath() const;
  std::string LengthsPath() const;
  // Locks the prefix against another process.
  Status Lock();
  // Reads the record, if there is one to go on from.
  Status Load();
  // Opens the files of the phase, as long as the record says.
  Status OpenFiles();
  Status StopKeeper();
  Status BeginReorder();
  Status PlaceDocuments(const std::function<int64_t(int64_t)>& order,
                        const std::function<bool(int64_t bytes)>& progress);
  Status WriteRecord();
  Status WriteIdx();
  Status MoveIntoPlace();

  const Args args_;
  PrepareRecord record_;
  base::Fd lock_;
  OutputFile bin_;
  OutputFile lengths_;
  std::unique_ptr<RecordKeeper> keeper_;
};

}  // namespace mt::data
