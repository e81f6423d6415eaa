// Data go to the disk while more come: written back in windows, so that the last sync waits for
// little.
#include "worker/hf/tensor_file.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>
#include <utility>

#include <nlohmann/json.hpp>

#include "common/base/check.h"
#include "common/base/math.h"
#include "worker/checkpoint/format/safetensors.h"

namespace mt::hf {
namespace {

Status WriteAll(int fd, int64_t at, std::span<const std::byte> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(fd, bytes.data(), bytes.size(), at);
    if (n < 0) {
      if (errno == EINTR) continue;
      return base::ErrnoError(errno, "write " + path);
    }
    bytes = bytes.subspan(static_cast<size_t>(n));
    at += n;
  }
  return OkStatus();
}

// Its length, and the header.
std::string HeaderOf(const std::vector<StreamTensor>& tensors,
                     const std::map<std::string, std::string>& metadata) {
  using nlohmann::json;
  std::string text = "{";
  if (!metadata.empty()) text += "\"__metadata__\":" + json(metadata).dump();
  int64_t offset = 0;
  for (const StreamTensor& tensor : tensors) {
    const json entry = {{"dtype", tensor.dtype},
                        {"shape", tensor.shape},
                        {"data_offsets", {offset, offset + tensor.bytes()}}};
    if (text.size() > 1) text += ',';
    text += json(tensor.name).dump() + ':' + entry.dump();
    offset += tensor.bytes();
  }
  text += '}';
  text.resize(static_cast<size_t>(base::RoundUp(static_cast<int64_t>(text.size()), 8)), ' ');
  const auto length = static_cast<uint64_t>(text.size());
  std::string header(sizeof(length), '\0');
  std::memcpy(header.data(), &length, sizeof(length));
  return header + text;
}

}  // namespace

int64_t StreamTensor::bytes() const { return checkpoint::TensorBytes(dtype, shape); }

TensorFile::TensorFile(std::string path, base::Fd fd, int64_t begin, int64_t bytes)
    : path_(std::move(path)), fd_(std::move(fd)), begin_(begin), bytes_(bytes), left_(bytes) {}

StatusOr<std::unique_ptr<TensorFile>> TensorFile::Create(
    const std::string& path, const std::vector<StreamTensor>& tensors,
    const std::map<std::string, std::string>& metadata) {
  int64_t bytes = 0;
  for (const StreamTensor& tensor : tensors) bytes += tensor.bytes();
  return CreateWith(path, HeaderOf(tensors, metadata), bytes);
}

StatusOr<std::unique_ptr<TensorFile>> TensorFile::CreateWith(const std::string& path,
                                                             std::string_view header,
                                                             int64_t bytes) {
  base::Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!fd) return base::ErrnoError(errno, "create " + path);
  RETURN_IF_ERROR(WriteAll(fd.get(), 0, std::as_bytes(std::span(header)), path));
  return std::unique_ptr<TensorFile>(
      new TensorFile(path, std::move(fd), std::ssize(header), bytes));
}

Status TensorFile::WriteAt(int64_t offset, std::span<const std::byte> bytes) {
  CHECK_GE(offset, 0) << path_;
  CHECK_LE(offset + std::ssize(bytes), bytes_) << path_;
  const int64_t at = begin_ + offset;
  RETURN_IF_ERROR(WriteAll(fd_.get(), at, bytes, path_));
  // Only asks: what fails shows in Finish.
  (void)::sync_file_range(fd_.get(), at, std::ssize(bytes), SYNC_FILE_RANGE_WRITE);
  left_ -= std::ssize(bytes);
  return OkStatus();
}

Status TensorFile::Finish() {
  CHECK_EQ(left_.load(), 0) << path_;
  if (::fsync(fd_.get()) != 0) return base::ErrnoError(errno, "fsync " + path_);
  return OkStatus();
}

}  // namespace mt::hf
