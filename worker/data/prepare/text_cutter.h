// Reads the inputs one after the other and cuts them into batches of about a mebibyte, at the ends
// of documents where they are shorter than that. The batches do not depend on who reads or encodes
// them. Not thread-safe; blocks on the inputs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "worker/data/prepare/document_cut.h"
#include "worker/data/prepare/json_text.h"
#include "worker/data/prepare/text_batch.h"
#include "worker/data/prepare/text_input.h"

namespace mt::data {

struct CutOptions {
  std::vector<std::string> inputs{};
  std::vector<int64_t> input_bytes{};  // on disk, one each
  DocumentRule rule = DocumentRule::kWholeFile;
  std::string separator{};
  std::string jsonl_key{};
  std::string tokenizer{};  // its name, for messages
  Cuts cuts{.rule = CutRule::kAnywhere};
  size_t batch_bytes = size_t{1} << 20;
  size_t most_document_bytes = size_t{64} << 20;  // of one that cannot be cut
  // Given the first bytes of standard input, which cannot be judged before. May be empty.
  std::function<Status(std::string_view beginning)> judge{};
};

class TextCutter {
 public:
  TextCutter(CutOptions options, const InputPosition& from);

  // Fills the next batch, except its number; false at the end of the last input. After an error,
  // which names file and line, it is not called again.
  StatusOr<bool> Next(TextBatch* batch);

 private:
  Status OpenNext();
  // Reads until `text` has `bytes` or the input ends, which sets at_end_.
  Status Fill(std::string* text, size_t bytes);
  // Bytes to read at first for a batch.
  size_t FirstRead() const;
  // What the rules take of the text at hand: bytes consumed, 0 if more is needed.
  size_t Cut(TextBatch* batch);
  size_t CutWholeFile(TextBatch* batch);
  size_t CutSeparated(TextBatch* batch);
  size_t CutJsonLines(TextBatch* batch);
  // A part of a document that fills the batch and goes on behind it.
  size_t CutPart(TextBatch* batch, size_t limit);
  void EndDocument(TextBatch* batch, size_t begin, size_t end);
  // One line of JSON that is longer than a batch: its text, as it comes.
  Status NextOfLongLine(TextBatch* batch);
  // Takes in what follows of it; true if it has ended.
  StatusOr<bool> FeedLongLine();
  // The document goes on too far behind `offset`.
  Status TooLong(int64_t line, int64_t offset) const;
  Status AtLine(const Status& status, int64_t line) const;
  void FinishBatch(TextBatch* batch);

  const CutOptions options_;
  InputPosition position_;  // of carry_'s first byte
  std::unique_ptr<TextInput> input_;
  std::string carry_;  // read, but not in a batch yet
  bool at_end_ = false;
  int64_t bytes_of_files_before_ = 0;
  JsonText json_;
  bool long_line_ = false;
  std::string long_text_;  // decoded, but not in a batch yet
  int64_t long_done_ = 0;  // bytes of it that were in batches
};

}  // namespace mt::data
