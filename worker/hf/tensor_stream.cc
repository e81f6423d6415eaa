// Data go to the disk while more come: written back in windows, so that the last sync waits for
// little.
#include "worker/hf/tensor_stream.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "common/base/check.h"
#include "common/base/math.h"
#include "worker/checkpoint/format/safetensors.h"

namespace mt::hf {
namespace {

Status WriteAll(int fd, std::span<const std::byte> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0) {
      if (errno == EINTR) continue;
      return base::ErrnoError(errno, "write " + path);
    }
    bytes = bytes.subspan(static_cast<size_t>(n));
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

StatusOr<TensorStream> TensorStream::Create(const std::string& path,
                                            const std::vector<StreamTensor>& tensors,
                                            const std::map<std::string, std::string>& metadata) {
  int64_t bytes = 0;
  for (const StreamTensor& tensor : tensors) bytes += tensor.bytes();
  return CreateWith(path, HeaderOf(tensors, metadata), bytes);
}

StatusOr<TensorStream> TensorStream::CreateWith(const std::string& path, std::string_view header,
                                                int64_t bytes) {
  TensorStream stream;
  stream.path_ = path;
  stream.fd_ = base::Fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!stream.fd_) return base::ErrnoError(errno, "create " + path);
  RETURN_IF_ERROR(WriteAll(stream.fd_.get(), std::as_bytes(std::span(header)), path));
  stream.at_ = std::ssize(header);
  stream.left_ = bytes;
  return stream;
}

Status TensorStream::Append(std::span<const std::byte> bytes) {
  CHECK_LE(std::ssize(bytes), left_) << path_;
  RETURN_IF_ERROR(WriteAll(fd_.get(), bytes, path_));
  // Only asks: what fails shows in Finish.
  (void)::sync_file_range(fd_.get(), at_, std::ssize(bytes), SYNC_FILE_RANGE_WRITE);
  at_ += std::ssize(bytes);
  left_ -= std::ssize(bytes);
  return OkStatus();
}

Status TensorStream::Finish() {
  CHECK_EQ(left_, 0) << path_;
  if (::fsync(fd_.get()) != 0) return base::ErrnoError(errno, "fsync " + path_);
  return OkStatus();
}

}  // namespace mt::hf
