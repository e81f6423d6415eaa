// The index is composed at the end, from what is in memory.
#include "worker/data/token_files/raw_writer.h"

#include <filesystem>
#include <limits>
#include <system_error>
#include <unistd.h>

#include "common/base/files.h"
#include "common/base/ids.h"
#include "worker/data/idx_writer.h"

namespace mt::data {

Status RawWriter::CheckFree(const std::string& prefix, bool overwrite) {
  for (const std::string_view ending : {".bin", ".idx"}) {
    const std::string path = prefix + std::string(ending);
    if (!overwrite && base::Exists(path)) {
      return base::Error(absl::StatusCode::kAlreadyExists,
                         "{}: exists already; choose another output prefix, or remove it first",
                         path);
    }
  }
  return OkStatus();
}

StatusOr<std::unique_ptr<RawWriter>> RawWriter::Create(const std::string& prefix, TokenType type,
                                                       bool overwrite) {
  RETURN_IF_ERROR(CheckFree(prefix, overwrite));
  const std::string folder = std::filesystem::path(prefix).parent_path().string();
  if (!folder.empty()) RETURN_IF_ERROR(base::MakeDirs(folder));
  std::unique_ptr<RawWriter> writer(new RawWriter(prefix, type));
  const std::string id = base::RandomHex(4);
  writer->idx_path_ = prefix + ".idx.tmp." + id;
  writer->bin_path_ = prefix + ".bin.tmp." + id;
  ASSIGN_OR_RETURN(writer->bin_, OutputFile::Open(writer->bin_path_));
  return writer;
}

RawWriter::~RawWriter() {
  ::unlink(bin_path_.c_str());
  ::unlink(idx_path_.c_str());
}

Status RawWriter::Append(std::string_view tokens) { return bin_.Append(tokens); }

Status RawWriter::EndSequence() {
  const int64_t tokens = num_tokens() - sequence_begin_;
  if (tokens > std::numeric_limits<int32_t>::max()) {
    return base::InvalidArgument(
        "{}: a sequence of {} tokens; an .idx holds at most 2^31 - 1: say where documents end",
        prefix_, tokens);
  }
  lengths_.push_back(static_cast<int32_t>(tokens));
  sequence_begin_ += tokens;
  return OkStatus();
}

Status RawWriter::EndTokens() {
  RETURN_IF_ERROR(bin_.Sync());
  bin_bytes_ = bin_.bytes();
  ended_ = true;
  bin_ = OutputFile();
  return OkStatus();
}

Status RawWriter::Finish(const std::optional<TokenizerRecord>& record,
                         const std::optional<TokenizerConfig>& files) {
  if (!ended_) RETURN_IF_ERROR(EndTokens());
  const IdxWriter::Shape shape = {
      .type = type_, .sequences = num_sequences(), .document_entries = num_documents() + 1};
  ASSIGN_OR_RETURN(IdxWriter idx, IdxWriter::Create(idx_path_, shape));
  for (const int32_t length : lengths_) RETURN_IF_ERROR(idx.AddSequence(length));
  for (const int64_t document : documents_) RETURN_IF_ERROR(idx.AddDocumentEntry(document));
  RETURN_IF_ERROR(idx.Finish());
  std::error_code ignored;
  std::filesystem::remove(RecordPath(prefix_), ignored);
  RETURN_IF_ERROR(PublishPair(bin_path_, idx_path_, prefix_));
  if (!record) return OkStatus();
  RETURN_IF_ERROR(WriteTokenizerRecord(prefix_, *record));
  if (!files) return OkStatus();
  return KeepTokenizer(*files, record->digest,
                       std::filesystem::path(prefix_).parent_path().string());
}

}  // namespace mt::data
