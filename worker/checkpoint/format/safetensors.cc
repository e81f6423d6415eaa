// Tensors are written in pieces of at most 8 MiB. Each piece is digested and written while the
// reader transfers the next one, or while other threads write theirs.
#include "worker/checkpoint/format/safetensors.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <deque>
#include <fcntl.h>
#include <limits>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include <nlohmann/json.hpp>

#include "common/base/math.h"
#include "worker/checkpoint/format/column_parts.h"
#include "worker/checkpoint/format/foreign_shard.h"
#include "worker/checkpoint/format/json_numbers.h"
#include "worker/checkpoint/format/json_text.h"
#include "worker/checkpoint/format/parallel_tasks.h"

namespace mt::checkpoint {
namespace {

static_assert(std::endian::native == std::endian::little, "the file format is little-endian");

constexpr int64_t kAlignment = 256;
constexpr int64_t kMaxHeaderBytes = 100 << 20;
constexpr int64_t kMaxForeignHeaderBytes = 100'000'000;  // the library's bound

Status WriteBytes(int fd, int64_t offset, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(fd, bytes.data(), bytes.size(), offset);
    if (n < 0) {
      if (errno == EINTR) continue;
      return base::ErrnoError(errno, "write " + path);
    }
    bytes.remove_prefix(static_cast<size_t>(n));
    offset += n;
  }
  return OkStatus();
}

// Tensors of the file that one in memory becomes.
size_t NumStored(const TensorToWrite& tensor) { return std::max<size_t>(tensor.parts.size(), 1); }

// The header length followed by the JSON header, which is padded with spaces so that the data
// begins aligned.
std::string MakeHeader(std::span<const TensorToWrite> tensors) {
  nlohmann::json header = nlohmann::json::object();
  int64_t offset = 0;
  for (const TensorToWrite& tensor : tensors) {
    std::vector<int64_t> shape = tensor.shape;
    if (!tensor.parts.empty()) shape.at(1) = base::DivExact(shape.at(1), std::ssize(tensor.parts));
    const int64_t bytes = TensorBytes(tensor.dtype, shape);
    for (size_t i = 0; i < NumStored(tensor); ++i) {
      header[tensor.parts.empty() ? tensor.name : tensor.parts[i]] = {
          {"dtype", tensor.dtype}, {"shape", shape}, {"data_offsets", {offset, offset + bytes}}};
      offset += bytes;
    }
  }
  std::string text = header.dump();
  const auto length = base::RoundUp(static_cast<int64_t>(text.size()) + 8, kAlignment) - 8;
  text.resize(static_cast<size_t>(length), ' ');
  std::string out(8, '\0');
  std::memcpy(out.data(), &length, 8);
  return out + text;
}

Status ReadAt(int fd, int64_t offset, std::span<std::byte> out, const std::string& path) {
  while (!out.empty()) {
    const ssize_t n = ::pread(fd, out.data(), out.size(), offset);
    if (n < 0) {
      if (errno == EINTR) continue;
      return base::ErrnoError(errno, "read " + path);
    }
    if (n == 0) return base::DataLoss("{} ends early: {} bytes missing", path, out.size());
    out = out.subspan(static_cast<size_t>(n));
    offset += n;
  }
  return OkStatus();
}

Status BadHeader(const std::string& path, std::string_view why) {
  return base::DataLoss("{} is not a readable safetensors file: {}; use another checkpoint", path,
                        why);
}

// Parses and validates one tensor's header entry. data_begin: offset of the data area in the file.
StatusOr<SafetensorsReader::Entry> ParseEntry(const nlohmann::json& image, int64_t data_begin,
                                              int64_t file_bytes, const std::string& path) {
  SafetensorsReader::Entry entry;
  const auto& offsets = image.at("data_offsets");
  entry.dtype = image.at("dtype").get<std::string>();
  entry.shape = Integers(image.at("shape"));
  const int64_t begin = Integer(offsets.at(0));
  const int64_t end = Integer(offsets.at(1));
  if (ElementSize(entry.dtype) == 0) return BadHeader(path, "unknown type " + entry.dtype);
  if (std::any_of(entry.shape.begin(), entry.shape.end(), [](int64_t d) { return d < 0; })) {
    return BadHeader(path, "negative dimension");
  }
  int64_t bytes = ElementSize(entry.dtype);
  for (const int64_t d : entry.shape) {
    if (__builtin_mul_overflow(bytes, d, &bytes)) return BadHeader(path, "shape too large");
  }
  if (begin < 0 || end < begin || end - begin != bytes || end > file_bytes - data_begin) {
    return BadHeader(path,
                     fmt::format("a tensor of {} bytes at {}-{} does not fit", bytes, begin, end));
  }
  entry.offset = data_begin + begin;
  entry.bytes = bytes;
  return entry;
}

// Consecutive elements of a tensor that are written together.
struct Piece {
  const char* data = nullptr;  // first element
  base::Runs places;
  int64_t count = 0;
  int64_t element_bytes = 0;
  bool ends_tensor = false;

  // Bytes of the piece in memory, including gaps, and in the file.
  int64_t SpanBytes() const { return places.Span(count) * element_bytes; }
  int64_t FileBytes() const { return count * element_bytes; }
};

// Divides a tensor into pieces.
std::vector<Piece> PiecesOf(const TensorToWrite& tensor) {
  std::vector<Piece> pieces;
  const auto* data = static_cast<const char*>(tensor.data);
  const int64_t element_bytes = ElementSize(tensor.dtype);
  const int64_t all = TensorBytes(tensor.dtype, tensor.shape) / element_bytes;
  int64_t done = 0;
  do {
    const base::Runs places = tensor.places.From(done);
    const int64_t count = std::min(all - done, places.CountIn(kLargestPieceBytes / element_bytes));
    pieces.push_back({.data = data + tensor.places.At(done) * element_bytes,
                      .places = places,
                      .count = count,
                      .element_bytes = element_bytes,
                      .ends_tensor = done + count == all});
    done += count;
  } while (done < all);
  return pieces;
}

// Divides all tensors into pieces.
std::vector<Piece> PiecesOf(std::span<const TensorToWrite> tensors) {
  std::vector<Piece> pieces;
  for (const TensorToWrite& tensor : tensors) {
    const std::vector<Piece> more = PiecesOf(tensor);
    pieces.insert(pieces.end(), more.begin(), more.end());
  }
  return pieces;
}

// The piece's bytes without gaps, as written to the file; `memory` points to its span. The result
// may be in *buffer.
std::string_view Packed(const Piece& piece, const void* memory, std::vector<char>* buffer) {
  const auto bytes = static_cast<size_t>(piece.FileBytes());
  if (piece.places.contiguous()) return {static_cast<const char*>(memory), bytes};
  buffer->resize(bytes);
  base::CopyFromRuns(piece.places, piece.count, piece.element_bytes, memory, buffer->data());
  return {buffer->data(), bytes};
}

// A tensor's bytes on their way to where it, or its parts, lie in the file.
class TensorStream {
 public:
  // The first of its bytes has this offset in the file; `path` is borrowed.
  TensorStream(int fd, const std::string& path, const TensorToWrite& tensor, int64_t offset,
               int64_t block_bytes)
      : fd_(fd), path_(path) {
    const auto parts = static_cast<int64_t>(NumStored(tensor));
    const int64_t bytes = TensorBytes(tensor.dtype, tensor.shape);
    for (int64_t i = 0; i < parts; ++i)
      parts_.emplace_back(offset + i * bytes / parts, block_bytes);
    if (parts > 1) cutter_.emplace(ElementSize(tensor.dtype) * tensor.shape.at(1), parts);
  }

  // Digests and writes the next bytes.
  Status Add(std::string_view bytes) {
    if (!cutter_) return AddTo(&parts_.front(), bytes);
    for (size_t i = 0; i < parts_.size(); ++i)
      RETURN_IF_ERROR(AddTo(&parts_[i], cutter_->Cut(bytes, static_cast<int64_t>(i))));
    cutter_->Advance(bytes);
    return OkStatus();
  }

  // When all bytes were added: of the tensor, or of each of its parts.
  void TakeDigests(BlockDigests* first) {
    for (Part& part : parts_) *first++ = part.digests.Take();
  }

 private:
  struct Part {
    Part(int64_t begin, int64_t block_bytes) : offset(begin), digests(block_bytes) {}
    int64_t offset;  // in the file, of what comes next
    BlockHasher digests;
  };

  Status AddTo(Part* part, std::string_view bytes) {
    part->digests.Add(bytes);
    RETURN_IF_ERROR(WriteBytes(fd_, part->offset, bytes, path_));
    part->offset += std::ssize(bytes);
    return OkStatus();
  }

  const int fd_;
  const std::string& path_;
  std::deque<Part> parts_;
  std::optional<ColumnCutter> cutter_;
};

// The data of one file on its way to disk.
class DataWriter {
 public:
  DataWriter(int fd, const std::string& path, std::span<const TensorToWrite> tensors,
             const ProgressFn& progress, int64_t block_bytes)
      : fd_(fd), path_(path), tensors_(tensors), progress_(progress), block_bytes_(block_bytes) {
    for (const TensorToWrite& tensor : tensors) {
      first_.push_back(digests_.size());
      digests_.resize(digests_.size() + NumStored(tensor));
    }
  }

  // Through the reader, in the order of the file, from its byte `offset` on.
  Status WriteInOrder(int64_t offset, PieceReader* reader) {
    const std::vector<Piece> pieces = PiecesOf(tensors_);
    std::vector<char> packed;
    size_t tensor = 0;
    std::optional<TensorStream> stream;  // of the tensor under way
    if (!pieces.empty()) reader->Start(pieces[0].data, pieces[0].SpanBytes());
    for (size_t i = 0; i < pieces.size(); ++i) {
      if (i + 1 < pieces.size()) reader->Start(pieces[i + 1].data, pieces[i + 1].SpanBytes());
      const std::string_view bytes = Packed(pieces[i], reader->Read(), &packed);
      if (!stream) stream.emplace(fd_, path_, tensors_[tensor], offset, block_bytes_);
      RETURN_IF_ERROR(Write(pieces[i], bytes, &*stream));
      offset += pieces[i].FileBytes();
      if (!pieces[i].ends_tensor) continue;
      stream->TakeDigests(&digests_[first_[tensor++]]);
      stream.reset();
    }
    return OkStatus();
  }

  // From host memory.
  Status WriteSideBySide(int64_t offset, int threads) {
    std::vector<int64_t> offsets;
    for (const TensorToWrite& tensor : tensors_) {
      offsets.push_back(offset);
      offset += TensorBytes(tensor.dtype, tensor.shape);
    }
    std::vector<Status> written(tensors_.size());
    RunTasks(static_cast<int64_t>(tensors_.size()), threads, [&](int64_t task) {
      const auto i = static_cast<size_t>(task);
      written[i] = WriteTensor(i, offsets[i]);
    });
    for (const Status& status : written) RETURN_IF_ERROR(status);
    return OkStatus();
  }

  std::vector<BlockDigests> TakeDigests() { return std::move(digests_); }

 private:
  Status WriteTensor(size_t i, int64_t offset) {
    TensorStream stream(fd_, path_, tensors_[i], offset, block_bytes_);
    std::vector<char> packed;
    for (const Piece& piece : PiecesOf(tensors_[i]))
      RETURN_IF_ERROR(Write(piece, Packed(piece, piece.data, &packed), &stream));
    stream.TakeDigests(&digests_[first_[i]]);
    return OkStatus();
  }

  Status Write(const Piece& piece, std::string_view bytes, TensorStream* stream) {
    RETURN_IF_ERROR(stream->Add(bytes));
    if (progress_) progress_(piece.FileBytes());
    return OkStatus();
  }

  const int fd_;
  const std::string& path_;
  const std::span<const TensorToWrite> tensors_;
  const ProgressFn& progress_;
  const int64_t block_bytes_;
  std::vector<size_t> first_;          // of each tensor in memory: its first one in the file
  std::vector<BlockDigests> digests_;  // of each in the file
};

}  // namespace

int64_t ElementSize(std::string_view dtype) {
  static constexpr std::pair<std::string_view, int64_t> kSizes[] = {
      {"F64", 8}, {"I64", 8},  {"F32", 4},     {"I32", 4},    {"BF16", 2}, {"F16", 2},
      {"U8", 1},  {"U64", 8},  {"C64", 8},     {"U32", 4},    {"U16", 2},  {"I16", 2},
      {"I8", 1},  {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};
  for (const auto& [name, size] : kSizes) {
    if (name == dtype) return size;
  }
  return 0;
}

int64_t TensorBytes(std::string_view dtype, std::span<const int64_t> shape) {
  int64_t bytes = ElementSize(dtype);
  for (const int64_t d : shape) bytes *= d;
  return bytes;
}

StatusOr<std::vector<BlockDigests>> WriteSafetensors(const std::string& path,
                                                     std::span<const TensorToWrite> tensors,
                                                     const ProgressFn& progress,
                                                     PieceReader* reader, int threads,
                                                     int64_t block_bytes) {
  const base::Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!fd) return base::ErrnoError(errno, "create " + path);
  const std::string header = MakeHeader(tensors);
  RETURN_IF_ERROR(WriteBytes(fd.get(), 0, header, path));
  const auto begin = static_cast<int64_t>(header.size());
  DataWriter data(fd.get(), path, tensors, progress, block_bytes);
  RETURN_IF_ERROR(reader == nullptr ? data.WriteSideBySide(begin, threads)
                                    : data.WriteInOrder(begin, reader));
  if (::fsync(fd.get()) != 0) return base::ErrnoError(errno, "fsync " + path);
  return data.TakeDigests();
}

StatusOr<SafetensorsReader> SafetensorsReader::Open(const std::string& path,
                                                    const base::FileOpener& open) {
  return OpenAs(path, open, /*foreign=*/false);
}

StatusOr<SafetensorsReader> SafetensorsReader::OpenForeign(const std::string& path,
                                                           const base::FileOpener& open) {
  return OpenAs(path, open, /*foreign=*/true);
}

StatusOr<SafetensorsReader> SafetensorsReader::OpenAs(const std::string& path,
                                                      const base::FileOpener& open, bool foreign) {
  SafetensorsReader reader;
  reader.path_ = path;
  ASSIGN_OR_RETURN(reader.fd_, base::OpenToRead(path, open));
  struct stat info {};
  if (::fstat(reader.fd_.get(), &info) != 0) return base::ErrnoError(errno, "stat " + path);
  const int64_t file_bytes = info.st_size;
  int64_t length = 0;
  if (file_bytes < 8) return BadHeader(path, "shorter than its header length");
  RETURN_IF_ERROR(ReadAt(reader.fd_.get(), 0, std::as_writable_bytes(std::span(&length, 1)), path));
  const int64_t most = foreign ? kMaxForeignHeaderBytes : kMaxHeaderBytes;
  if (length < 2 || length > std::min(most, file_bytes - 8)) {
    return BadHeader(path,
                     fmt::format("header length {} in a file of {} bytes", length, file_bytes));
  }
  std::string text(static_cast<size_t>(length), '\0');
  RETURN_IF_ERROR(ReadAt(reader.fd_.get(), 8, std::as_writable_bytes(std::span(text)), path));
  const nlohmann::json header = ParseJson(text);
  if (!header.is_object()) return BadHeader(path, "the header is not a JSON object");
  try {
    for (const auto& [name, json] : header.items()) {
      if (name == "__metadata__") continue;
      ASSIGN_OR_RETURN(Entry entry, ParseEntry(json, 8 + length, file_bytes, path));
      reader.entries_.emplace(name, std::move(entry));
    }
  } catch (const nlohmann::json::exception& error) {
    return BadHeader(path, error.what());
  }
  if (foreign) {
    const Status lawful = CheckForeign(text, header, reader.entries_, 8 + length, file_bytes);
    if (!lawful.ok()) return BadHeader(path, base::Message(lawful));
  }
  return reader;
}

Status SafetensorsReader::Read(const Entry& entry, std::span<std::byte> out) const {
  CHECK_EQ(static_cast<int64_t>(out.size()), entry.bytes);
  return ReadAt(fd_.get(), entry.offset, out, path_);
}

Status SafetensorsReader::ReadPart(const Entry& entry, int64_t offset,
                                   std::span<std::byte> out) const {
  CHECK(offset >= 0 && offset + std::ssize(out) <= entry.bytes) << path_;
  return ReadAt(fd_.get(), entry.offset + offset, out, path_);
}

}  // namespace mt::checkpoint
