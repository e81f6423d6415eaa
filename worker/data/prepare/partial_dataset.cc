// Files beside the prefix: .bin.partial, .lengths.partial (an i32 for each document), the same as
// .reordered.partial while documents are put in another order, .idx.partial, .prepare.json. The
// lock is on .lengths.partial, which keeps its name until the end.
#include "worker/data/prepare/partial_dataset.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <limits>
#include <sys/file.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "worker/data/idx_writer.h"
#include "worker/data/prepare/placed_documents.h"
#include "worker/data/prepare/record_keeper.h"

namespace mt::data {
namespace {

using Phase = PrepareRecord::Phase;

constexpr std::string_view kBin = ".bin.partial";
constexpr std::string_view kLengths = ".lengths.partial";
constexpr std::string_view kReorderedBin = ".bin.reordered.partial";
constexpr std::string_view kReorderedLengths = ".lengths.reordered.partial";
constexpr std::string_view kIdx = ".idx.partial";
constexpr std::string_view kRecord = ".prepare.json";

// Calls visit(length) for the i32s of a file.
Status ForEachLength(const std::string& path, const std::function<Status(int32_t)>& visit) {
  const base::Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return base::ErrnoError(errno, "open " + path);
  std::vector<int32_t> block(size_t{1} << 16);
  for (int64_t at = 0;;) {
    const ssize_t n = ::pread(fd.get(), block.data(), block.size() * sizeof(int32_t), at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return base::ErrnoError(errno, fmt::format("read {} at byte {}", path, at));
    if (n == 0) return OkStatus();
    const size_t count = static_cast<size_t>(n) / sizeof(int32_t);
    if (count == 0) return base::DataLoss("{}: ends within a number", path);
    for (size_t i = 0; i < count; ++i) RETURN_IF_ERROR(visit(block[i]));
    at += static_cast<int64_t>(count * sizeof(int32_t));
  }
}

}  // namespace

PartialDataset::PartialDataset(Args args) : args_(std::move(args)) {
  record_.made_of = args_.made_of;
}

PartialDataset::~PartialDataset() = default;

StatusOr<std::unique_ptr<PartialDataset>> PartialDataset::Open(const Args& args) {
  std::unique_ptr<PartialDataset> data(new PartialDataset(args));
  RETURN_IF_ERROR(data->Lock());
  RETURN_IF_ERROR(data->Load());
  if (data->record_.phase != Phase::kPublish) RETURN_IF_ERROR(data->OpenFiles());
  return data;
}

std::string PartialDataset::BinPath() const {
  const bool reordered = record_.reordered || record_.phase == Phase::kReorder;
  return Path(reordered ? kReorderedBin : kBin);
}

std::string PartialDataset::LengthsPath() const {
  const bool reordered = record_.reordered || record_.phase == Phase::kReorder;
  return Path(reordered ? kReorderedLengths : kLengths);
}

Status PartialDataset::Lock() {
  const std::string path = Path(kLengths);
  lock_ = base::Fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!lock_) return base::ErrnoError(errno, "create " + path);
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) == 0) return OkStatus();
  return base::FailedPrecondition(
      "{}: another process makes this data set; choose another --output", args_.prefix);
}

Status PartialDataset::Load() {
  const std::string path = Path(kRecord);
  if (args_.restart) ::unlink(path.c_str());
  if (!base::Exists(path)) return OkStatus();
  ASSIGN_OR_RETURN(const std::string text, base::ReadFile(path));
  StatusOr<PrepareRecord> record = ParseRecord(text);
  constexpr std::string_view kRestart = "--restart begins anew";
  if (!record.ok()) {
    return base::FailedPrecondition("{}: {}; {}", path, base::Message(record.status()), kRestart);
  }
  // Who was asked and says something else has answered.
  const bool same = args_.resumable && record->made_of == args_.made_of;
  if (record->phase == Phase::kConsent && !same) {
    ::unlink(path.c_str());
    return OkStatus();
  }
  if (record->made_of.options != args_.made_of.options) {
    return base::FailedPrecondition(
        "{}: a run that was interrupted here had other options ({}; these are {}): give the same "
        "to "
        "go on with it, or {}",
        path, record->made_of.options, args_.made_of.options, kRestart);
  }
  if (!args_.resumable || record->made_of.inputs != args_.made_of.inputs) {
    return base::FailedPrecondition(
        "{}: a run that was interrupted here had other inputs, or their names, sizes or times have "
        "changed since: {}",
        path, kRestart);
  }
  record_ = *std::move(record);
  return OkStatus();
}

Status PartialDataset::OpenFiles() {
  const bool reorder = record_.phase == Phase::kReorder;
  const auto open = [&]() -> Status {
    ASSIGN_OR_RETURN(bin_, OutputFile::Open(BinPath(), record_.bin_bytes));
    ASSIGN_OR_RETURN(lengths_, OutputFile::Open(LengthsPath(), 4 * (reorder ? record_.placed
                                                                            : record_.documents)));
    return OkStatus();
  };
  const Status status = open();
  if (absl::IsDataLoss(status)) {
    return base::FailedPrecondition("{}: --restart begins anew", base::Message(status));
  }
  RETURN_IF_ERROR(status);
  const RecordKeeper::Args keep = {.path = args_.resumable ? Path(kRecord) : "",
                                   .bin_fd = bin_.fd(),
                                   .lengths_fd = lengths_.fd(),
                                   .begin_bytes = record_.bin_bytes,
                                   .every_bytes = args_.record_every_bytes};
  keeper_ = std::make_unique<RecordKeeper>(keep);
  return OkStatus();
}

Status PartialDataset::AddTokens(std::string_view tokens, int64_t count) {
  RETURN_IF_ERROR(bin_.Append(tokens));
  record_.bin_bytes += static_cast<int64_t>(tokens.size());
  record_.tokens += count;
  return OkStatus();
}

Status PartialDataset::AddToDocument(int64_t count) {
  record_.open_tokens += count;
  if (record_.open_tokens <= std::numeric_limits<int32_t>::max()) return OkStatus();
  return base::InvalidArgument(
      "a document of more than 2^31 - 1 tokens, the most that an .idx holds: cut it into "
      "documents, with --separator");
}

Status PartialDataset::EndDocument() {
  const auto length = static_cast<int32_t>(record_.open_tokens);
  RETURN_IF_ERROR(
      lengths_.Append(std::string_view(reinterpret_cast<const char*>(&length), sizeof(length))));
  ++record_.documents;
  record_.empty_documents += length == 0 ? 1 : 0;
  record_.open_tokens = 0;
  return OkStatus();
}

Status PartialDataset::Reached(const InputPosition& position) {
  RETURN_IF_ERROR(bin_.Flush());
  RETURN_IF_ERROR(lengths_.Flush());
  record_.position = position;
  return keeper_->Offer(record_);
}

Status PartialDataset::WriteRecord() {
  if (!args_.resumable) return OkStatus();
  return data::WriteRecord(Path(kRecord), record_);
}

Status PartialDataset::StopKeeper() {
  if (keeper_ == nullptr) return OkStatus();
  Status kept = keeper_->Stop();
  keeper_.reset();
  return kept;
}

Status PartialDataset::BeginReorder() {
  RETURN_IF_ERROR(StopKeeper());
  RETURN_IF_ERROR(bin_.Sync());
  RETURN_IF_ERROR(lengths_.Sync());
  record_.phase = Phase::kReorder;
  record_.bin_bytes = 0;
  record_.placed = 0;
  RETURN_IF_ERROR(OpenFiles());
  return WriteRecord();
}

Status PartialDataset::AwaitConsent() {
  if (record_.phase == Phase::kConsent) return OkStatus();
  RETURN_IF_ERROR(StopKeeper());
  RETURN_IF_ERROR(bin_.Sync());
  RETURN_IF_ERROR(lengths_.Sync());
  record_.phase = Phase::kConsent;
  return WriteRecord();
}

Status PartialDataset::Reorder(const std::function<int64_t(int64_t)>& order,
                               const std::function<bool(int64_t bytes)>& progress) {
  if (record_.reordered || record_.phase == Phase::kPublish) return OkStatus();
  if (record_.phase != Phase::kReorder) RETURN_IF_ERROR(BeginReorder());
  RETURN_IF_ERROR(PlaceDocuments(order, progress));
  record_.reordered = true;
  return OkStatus();
}

Status PartialDataset::PlaceDocuments(const std::function<int64_t(int64_t)>& order,
                                      const std::function<bool(int64_t bytes)>& progress) {
  ASSIGN_OR_RETURN(
      PlacedDocuments from,
      PlacedDocuments::Open(Path(kBin), Path(kLengths), record_.documents, SizeOf(args_.type)));
  int64_t reported_bytes = record_.bin_bytes;
  while (record_.placed < record_.documents) {
    const auto take = [&](std::string_view tokens) {
      record_.bin_bytes += static_cast<int64_t>(tokens.size());
      return bin_.Append(tokens);
    };
    ASSIGN_OR_RETURN(const int64_t tokens, from.Read(order(record_.placed), take));
    const auto length = static_cast<int32_t>(tokens);
    RETURN_IF_ERROR(
        lengths_.Append(std::string_view(reinterpret_cast<const char*>(&length), sizeof(length))));
    ++record_.placed;
    if (record_.bin_bytes - reported_bytes < (int64_t{1} << 20)) continue;
    reported_bytes = record_.bin_bytes;
    RETURN_IF_ERROR(Reached(record_.position));
    if (!progress(reported_bytes)) return base::Error(absl::StatusCode::kCancelled, "cancelled");
  }
  return OkStatus();
}

Status PartialDataset::WriteIdx() {
  const IdxWriter::Shape shape = {.type = args_.type,
                                  .sequences = record_.documents - record_.empty_documents,
                                  .document_entries = record_.documents + 1};
  ASSIGN_OR_RETURN(IdxWriter writer, IdxWriter::Create(Path(kIdx), shape));
  int64_t sequences = 0;
  RETURN_IF_ERROR(writer.AddDocumentEntry(0));
  const auto add = [&](int32_t length) -> Status {
    if (length > 0) {
      RETURN_IF_ERROR(writer.AddSequence(length));
      ++sequences;
    }
    return writer.AddDocumentEntry(sequences);
  };
  RETURN_IF_ERROR(ForEachLength(LengthsPath(), add));
  return writer.Finish();
}

Status PartialDataset::Publish() {
  if (record_.phase != Phase::kPublish) {
    RETURN_IF_ERROR(StopKeeper());
    RETURN_IF_ERROR(bin_.Sync());
    RETURN_IF_ERROR(lengths_.Flush());
    RETURN_IF_ERROR(WriteIdx());
    record_.phase = Phase::kPublish;
    RETURN_IF_ERROR(WriteRecord());
  }
  RETURN_IF_ERROR(MoveIntoPlace());
  Discard();
  return OkStatus();
}

// A run that was killed here has moved both, one or none.
Status PartialDataset::MoveIntoPlace() {
  if (base::Exists(BinPath())) return PublishPair(BinPath(), Path(kIdx), args_.prefix);
  if (!base::Exists(Path(kIdx))) return OkStatus();
  const std::string idx = args_.prefix + ".idx";
  if (::rename(Path(kIdx).c_str(), idx.c_str()) != 0)
    return base::ErrnoError(errno, fmt::format("rename {} to {}", Path(kIdx), idx));
  const std::string folder = std::filesystem::path(idx).parent_path().string();
  return base::SyncDir(folder.empty() ? "." : folder);
}

void PartialDataset::Discard() {
  keeper_.reset();
  ::unlink(RecordDraft(Path(kRecord)).c_str());
  for (const std::string_view ending :
       {kRecord, kBin, kReorderedBin, kReorderedLengths, kIdx, kLengths})
    ::unlink(Path(ending).c_str());
}

}  // namespace mt::data
