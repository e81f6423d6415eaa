// The sizes of a header are compared with the file's length before anything is made of them.
#include "worker/llmc/model_file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "common/base/check.h"
#include "megatrain/v1/job.pb.h"
#include "worker/checkpoint/format/safetensors.h"
#include "worker/hf/element_types.h"
#include "worker/llmc/tensors.h"

namespace mt::llmc {
namespace {

using checkpoint::Box;
using checkpoint::ElementSize;
using hf::HfTensor;
using hf::Source;

int64_t ColumnsOf(const HfTensor& tensor) { return tensor.shape.size() == 2 ? tensor.shape[1] : 1; }

// The bytes of the open file; kInvalidArgument where it is none.
StatusOr<int64_t> SizeOf(const base::Fd& fd, const std::string& path) {
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return base::ErrnoError(errno, "stat " + path);
  if (S_ISREG(info.st_mode)) return static_cast<int64_t>(info.st_size);
  return base::InvalidArgument("{} is {}: name the model's file, such as model_00001000.bin", path,
                               S_ISDIR(info.st_mode) ? "a folder" : "no regular file");
}

// Opening a pipe returns at once, as spec::BelowRoot's does.
StatusOr<base::Fd> OpenFile(const std::string& path, const base::FileOpener& open) {
  if (open) return open(path);
  base::Fd fd(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!fd) return base::ErrnoError(errno, "open " + path);
  return fd;
}

// What is said of a file that is none of llm.c's, with how a part of a Hugging Face model is named.
Status NoneOfLlmC(const Status& why, const std::string& path) {
  const std::filesystem::path file = path;
  const std::string name = file.filename().string();
  if (name != "config.json" && !name.ends_with(".safetensors") && !name.ends_with(".index.json"))
    return base::Annotate(why, path);
  const std::string folder = file.parent_path().string();
  return base::Error(
      why.code(),
      "{}: {}; a Hugging Face model is read from its folder: name the folder, {} (in "
      "a job with checkpoint.load_kind: hf)",
      path, base::Message(why), folder.empty() ? "." : folder);
}

}  // namespace

// Rows [row, row + count) of a tensor, columns [begin, end), to `out` [count, end - begin].
struct ModelFile::Run {
  const HfTensor* tensor = nullptr;
  int64_t offset = 0;  // of the tensor, in the file
  int64_t row = 0, count = 0;
  int64_t begin = 0, end = 0;
  std::string_view dtype;
  std::byte* out = nullptr;
};

StatusOr<ModelFile> ModelFile::Open(const std::string& path, const base::FileOpener& open,
                                    int64_t read_bytes) {
  ModelFile out;
  out.path_ = path;
  out.read_bytes_ = read_bytes;
  ASSIGN_OR_RETURN(out.fd_, OpenFile(path, open));
  ASSIGN_OR_RETURN(const int64_t file_bytes, SizeOf(out.fd_, path));
  std::array<std::byte, kHeaderBytes> bytes{};
  const auto there = static_cast<size_t>(std::min(file_bytes, kHeaderBytes));
  RETURN_IF_ERROR(out.ReadAt(0, std::span(bytes).first(there)));
  StatusOr<Header> header = ParseHeader(std::span(bytes).first(there));
  if (!header.ok()) return NoneOfLlmC(header.status(), path);
  out.header_ = *header;
  // Before the list of tensors, which grows with the layers that the header says.
  RETURN_IF_ERROR(out.CheckSize(file_bytes));
  auto model = ModelOf(out.header_);
  if (!model.ok()) return base::Annotate(model.status(), path);
  out.model_ = *std::move(model);
  out.tensors_ = TensorsOf(*out.model_, out.header_);
  int64_t at = kHeaderBytes;
  for (const HfTensor& tensor : out.tensors_) {
    out.offsets_.push_back(at);
    at += checkpoint::TensorBytes(TypeOf(out.header_.version), tensor.shape);
  }
  CHECK_EQ(at, FileBytes(out.header_)) << path;
  out.sources_ = hf::SourcesOf(out.tensors_);
  out.parameters_ = hf::ParametersOf(*out.model_);
  RETURN_IF_ERROR(out.NotePadding());
  return out;
}

Status ModelFile::CheckSize(int64_t file_bytes) const {
  const int64_t said = FileBytes(header_);
  if (file_bytes == said) return OkStatus();
  if (file_bytes > said) {
    return base::InvalidArgument(
        "{}: by its header it ends at byte {}, and {} bytes follow: it is no whole model of that "
        "header",
        path_, said, file_bytes - said);
  }
  // The tensor that the end lies in.
  int64_t begin = kHeaderBytes, end = kHeaderBytes;
  std::string_view name;
  for (const Stack& stack : StacksOf(header_)) {
    begin = end;
    end += stack.elements * ElementSize(TypeOf(header_.version));
    name = stack.name;
    if (file_bytes < end) break;
  }
  return base::DataLoss(
      "{} ends at byte {}, in {} (bytes {} to {}); by its header it has {} bytes: what wrote or "
      "copied it did not come to its end; write or copy it again",
      path_, file_bytes, name, begin, end, said);
}

Status ModelFile::NotePadding() {
  const int64_t padding = header_.padded_vocab - header_.vocab;
  if (padding == 0) return OkStatus();
  const int64_t element = ElementSize(TypeOf(header_.version));
  int64_t at = offsets_[0] + header_.vocab * header_.hidden * element;
  const int64_t end = offsets_[1];
  std::vector<std::byte> buffer;
  for (; at < end; at += std::ssize(buffer)) {
    buffer.resize(static_cast<size_t>(std::min(read_bytes_, end - at)));
    RETURN_IF_ERROR(ReadAt(at, buffer));
    const auto other = std::ranges::find_if(buffer, [](std::byte b) { return b != std::byte{0}; });
    if (other == buffer.end()) continue;
    notes_.push_back(
        fmt::format("the padding of the vocabulary is not zero at byte {}: it is left out, since "
                    "llm.c gives it probability 0 all the same",
                    at + (other - buffer.begin())));
    return OkStatus();
  }
  return OkStatus();
}

Status ModelFile::Read(const std::string& parameter, const Box& box, const std::string& dtype,
                       std::byte* out) const {
  CheckInside(parameter, box);
  const bool matrix = box.shape.size() == 2;
  const int64_t begin = matrix ? box.offset[1] : 0;
  const int64_t end = matrix ? begin + box.shape[1] : 1;
  if (begin == end) return OkStatus();
  for (const Source& source : sources_.at(parameter)) {
    const int64_t first = std::max(box.offset[0], source.first);
    const int64_t last = std::min(box.offset[0] + box.shape[0], source.first + source.count);
    if (first >= last) continue;
    const auto index = static_cast<size_t>(source.tensor - tensors_.data());
    RETURN_IF_ERROR(
        ReadRun({.tensor = source.tensor,
                 .offset = offsets_[index],
                 .row = source.tensor_first + first - source.first,
                 .count = last - first,
                 .begin = begin,
                 .end = end,
                 .dtype = dtype,
                 .out = out + (first - box.offset[0]) * (end - begin) * ElementSize(dtype)}));
  }
  return OkStatus();
}

StatusOr<std::string> ModelFile::Fingerprint() const {
  base::Hash128 digest;
  const auto add = [&](int64_t begin, int64_t bytes) {
    return AddEnds(
        bytes,
        [&](int64_t offset, std::span<std::byte> out) { return ReadAt(begin + offset, out); },
        &digest);
  };
  RETURN_IF_ERROR(add(0, kHeaderBytes));
  for (size_t i = 0; i < tensors_.size(); ++i) {
    RETURN_IF_ERROR(
        add(offsets_[i], checkpoint::TensorBytes(TypeOf(header_.version), tensors_[i].shape)));
  }
  return digest.Take();
}

Status ModelFile::ReadRun(const Run& run) const {
  const std::string_view stored = TypeOf(header_.version);
  const int64_t columns = ColumnsOf(*run.tensor);
  const int64_t from = ElementSize(stored), to = ElementSize(run.dtype);
  const int64_t width = run.end - run.begin;
  const int64_t at = run.offset + run.row * columns * from;
  if (width == columns && stored == run.dtype) {
    return ReadAt(at, {run.out, static_cast<size_t>(run.count * columns * from)});
  }
  const int64_t at_once = std::max<int64_t>(1, read_bytes_ / (columns * from));
  std::vector<std::byte> buffer;
  for (int64_t done = 0; done < run.count; done += at_once) {
    const int64_t count = std::min(at_once, run.count - done);
    buffer.resize(static_cast<size_t>(count * columns * from));
    RETURN_IF_ERROR(ReadAt(at + done * columns * from, buffer));
    for (int64_t r = 0; r < count; ++r) {
      hf::ConvertElements(stored, buffer.data() + (r * columns + run.begin) * from, run.dtype,
                          run.out + (done + r) * width * to, width);
    }
  }
  return OkStatus();
}

Status ModelFile::ReadAt(int64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t n = ::pread(fd_.get(), out.data(), out.size(), offset);
    if (n < 0) {
      if (errno == EINTR) continue;
      return base::ErrnoError(errno, "read " + path_);
    }
    if (n == 0) {
      return base::DataLoss("{} ends at byte {}, where {} bytes more were there", path_, offset,
                            out.size());
    }
    out = out.subspan(static_cast<size_t>(n));
    offset += n;
  }
  return OkStatus();
}

}  // namespace mt::llmc
