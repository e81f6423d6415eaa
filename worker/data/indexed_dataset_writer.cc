// Tokens are buffered and appended to the .bin in pieces of about 1 MiB. The .idx is written at the
// end, from the lengths and document entries kept in memory.
#include "worker/data/indexed_dataset_writer.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <limits>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/check.h"
#include "worker/data/idx_writer.h"

namespace mt::data {
namespace {

constexpr size_t kFlushBytes = size_t{1} << 20;

Status WriteAll(const base::Fd& fd, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd.get(), bytes.data(), bytes.size());
    if (n < 0) {
      if (errno == EINTR) continue;
      return base::ErrnoError(errno, "write " + path);
    }
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return OkStatus();
}

// Creates a file of mode 0644 from a mkostemp template, which is replaced by the actual name.
StatusOr<base::Fd> CreateTemporary(std::string* path) {
  base::Fd fd(::mkostemp(path->data(), O_CLOEXEC));
  if (!fd) return base::ErrnoError(errno, "create " + *path);
  if (::fchmod(fd.get(), 0644) != 0) return base::ErrnoError(errno, "chmod " + *path);
  return fd;
}

}  // namespace

IndexedDatasetWriter::IndexedDatasetWriter(std::string prefix, TokenType type)
    : prefix_(std::move(prefix)), type_(type) {}

StatusOr<std::unique_ptr<IndexedDatasetWriter>> IndexedDatasetWriter::Create(
    const std::string& prefix, TokenType type) {
  CHECK_GT(SizeOf(type), 0) << "token files hold integers";
  std::unique_ptr<IndexedDatasetWriter> writer(new IndexedDatasetWriter(prefix, type));
  std::string bin = prefix + ".bin.tmp.XXXXXX";
  ASSIGN_OR_RETURN(writer->bin_, CreateTemporary(&bin));
  writer->bin_temporary_ = bin;
  std::string idx = prefix + ".idx.tmp.XXXXXX";
  ASSIGN_OR_RETURN(writer->idx_, CreateTemporary(&idx));
  writer->idx_temporary_ = idx;
  return writer;
}

IndexedDatasetWriter::~IndexedDatasetWriter() {
  if (!bin_temporary_.empty()) ::unlink(bin_temporary_.c_str());
  if (!idx_temporary_.empty()) ::unlink(idx_temporary_.c_str());
}

template <class T>
Status IndexedDatasetWriter::Append(std::span<const int32_t> tokens) {
  const size_t at = buffer_.size();
  buffer_.resize(at + tokens.size() * sizeof(T));
  char* out = buffer_.data() + at;
  for (const int32_t token : tokens) {
    const T value = static_cast<T>(token);
    if (static_cast<int64_t>(value) != int64_t{token}) {
      buffer_.resize(at);
      return base::InvalidArgument("{}.bin: token id {} does not fit {}", prefix_, token,
                                   Name(type_));
    }
    std::memcpy(out, &value, sizeof(T));
    out += sizeof(T);
  }
  return OkStatus();
}

Status IndexedDatasetWriter::AddSequence(std::span<const int32_t> tokens) {
  if (tokens.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    return base::InvalidArgument(
        "{}.idx: a sequence of {} tokens; the format holds at most 2^31 - 1, cut the document",
        prefix_, tokens.size());
  }
  Status status;
  switch (type_) {
    case TokenType::kU8:
      status = Append<uint8_t>(tokens);
      break;
    case TokenType::kI8:
      status = Append<int8_t>(tokens);
      break;
    case TokenType::kI16:
      status = Append<int16_t>(tokens);
      break;
    case TokenType::kU16:
      status = Append<uint16_t>(tokens);
      break;
    case TokenType::kI32:
      status = Append<int32_t>(tokens);
      break;
    case TokenType::kI64:
      status = Append<int64_t>(tokens);
      break;
    case TokenType::kF64:
    case TokenType::kF32:
      CHECK(false) << "refused by Create";
  }
  RETURN_IF_ERROR(status);
  lengths_.push_back(static_cast<int32_t>(tokens.size()));
  num_tokens_ += static_cast<int64_t>(tokens.size());
  return buffer_.size() < kFlushBytes ? OkStatus() : FlushBin();
}

void IndexedDatasetWriter::EndDocument() { documents_.push_back(num_sequences()); }

Status IndexedDatasetWriter::FlushBin() {
  RETURN_IF_ERROR(WriteAll(bin_, buffer_, bin_temporary_));
  buffer_.clear();
  return OkStatus();
}

Status IndexedDatasetWriter::WriteIdx() const {
  ASSIGN_OR_RETURN(IdxWriter writer,
                   IdxWriter::Create(idx_temporary_, {.type = type_,
                                                      .sequences = num_sequences(),
                                                      .document_entries = num_documents() + 1}));
  for (const int32_t length : lengths_) RETURN_IF_ERROR(writer.AddSequence(length));
  for (const int64_t document : documents_) RETURN_IF_ERROR(writer.AddDocumentEntry(document));
  return writer.Finish();
}

Status IndexedDatasetWriter::Finish() {
  CHECK(!finished_ && documents_.back() == num_sequences()) << "EndDocument is missing";
  finished_ = true;
  RETURN_IF_ERROR(FlushBin());
  RETURN_IF_ERROR(WriteIdx());
  if (::fsync(bin_.get()) != 0) return base::ErrnoError(errno, "fsync " + bin_temporary_);
  bin_.Reset();
  idx_.Reset();
  RETURN_IF_ERROR(PublishPair(bin_temporary_, idx_temporary_, prefix_));
  bin_temporary_.clear();
  idx_temporary_.clear();
  return OkStatus();
}

}  // namespace mt::data
