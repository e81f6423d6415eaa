// A transposed matrix is read in blocks of its columns, which are rows of the file: as many as the
// buffer holds.
#include "worker/hf/tensor_writer.h"

#include <algorithm>
#include <cstring>

#include "common/base/check.h"
#include "worker/checkpoint/format/safetensors.h"
#include "worker/hf/element_types.h"

namespace mt::hf {
namespace {

// Tiles keep both sides of a transposition in cache.
constexpr int64_t kTile = 32;

// [rows, columns] to [columns, rows], of elements of `element` bytes.
void Transpose(const std::byte* in, int64_t rows, int64_t columns, int64_t element,
               std::byte* out) {
  const auto size = static_cast<size_t>(element);
  for (int64_t r0 = 0; r0 < rows; r0 += kTile) {
    for (int64_t c0 = 0; c0 < columns; c0 += kTile) {
      const int64_t r1 = std::min(rows, r0 + kTile), c1 = std::min(columns, c0 + kTile);
      for (int64_t c = c0; c < c1; ++c) {
        for (int64_t r = r0; r < r1; ++r)
          std::memcpy(out + (c * rows + r) * element, in + (r * columns + c) * element, size);
      }
    }
  }
}

// Grows only: a vector clears what it gets anew.
std::byte* Room(std::vector<std::byte>* buffer, int64_t bytes) {
  if (std::ssize(*buffer) < bytes) buffer->resize(static_cast<size_t>(bytes));
  return buffer->data();
}

}  // namespace

Status TensorWriter::Write(const HfTensor& tensor, TensorStream* stream) {
  if (tensor.transposed) return WriteTransposed(tensor, stream);
  for (const Rows& run : tensor.rows) RETURN_IF_ERROR(WriteRows(tensor, run, stream));
  return OkStatus();
}

Status TensorWriter::WriteRows(const HfTensor& tensor, const Rows& run, TensorStream* stream) {
  const int64_t columns = tensor.shape.size() == 2 ? tensor.shape[1] : 1;
  if (run.parameter.empty()) return WriteZeros(run.count * columns, stream);
  const int64_t element = checkpoint::ElementSize(args_.dtype);
  const int64_t at_once = std::max<int64_t>(1, args_.buffer_bytes / (8 * columns));
  for (int64_t done = 0; done < run.count; done += at_once) {
    const int64_t count = std::min(at_once, run.count - done);
    const int64_t bytes = count * columns * element;
    std::byte* const out = Room(&written_, bytes);
    RETURN_IF_ERROR(
        ReadBox({run.parameter, run.first + done, count}, 0, columns, tensor.gain, out));
    RETURN_IF_ERROR(Append({out, static_cast<size_t>(bytes)}, stream));
  }
  return OkStatus();
}

Status TensorWriter::WriteZeros(int64_t count, TensorStream* stream) {
  int64_t left = count * checkpoint::ElementSize(args_.dtype);
  // Of every floating type.
  const std::vector<std::byte> zeros(
      static_cast<size_t>(std::min(left, std::max<int64_t>(1, args_.buffer_bytes))));
  while (left > 0) {
    const int64_t bytes = std::min(left, std::ssize(zeros));
    RETURN_IF_ERROR(Append(std::span(zeros).first(static_cast<size_t>(bytes)), stream));
    left -= bytes;
  }
  return OkStatus();
}

Status TensorWriter::WriteTransposed(const HfTensor& tensor, TensorStream* stream) {
  const int64_t inputs = tensor.shape[0], outputs = tensor.shape[1];
  const int64_t element = checkpoint::ElementSize(args_.dtype);
  const int64_t at_once = std::max<int64_t>(1, args_.buffer_bytes / (8 * outputs));
  for (int64_t begin = 0; begin < inputs; begin += at_once) {
    const int64_t end = std::min(inputs, begin + at_once);
    const int64_t bytes = outputs * (end - begin) * element;
    std::byte* out = Room(&written_, bytes);
    for (const Rows& run : tensor.rows) {
      RETURN_IF_ERROR(ReadBox(run, begin, end, false, out));
      out += run.count * (end - begin) * element;
    }
    std::byte* const turned = Room(&turned_, bytes);
    Transpose(written_.data(), outputs, end - begin, element, turned);
    RETURN_IF_ERROR(Append({turned, static_cast<size_t>(bytes)}, stream));
  }
  return OkStatus();
}

Status TensorWriter::ReadBox(const Rows& rows, int64_t begin, int64_t end, bool gain,
                             std::byte* out) {
  ASSIGN_OR_RETURN(const checkpoint::TensorEntry* entry,
                   args_.weights->Find(rows.parameter, args_.parameters->at(rows.parameter)));
  const bool matrix = entry->shape.size() == 2;
  const checkpoint::Box box = matrix
                                  ? checkpoint::Box{{rows.first, begin}, {rows.count, end - begin}}
                                  : checkpoint::Box{{rows.first}, {rows.count}};
  const int64_t elements = rows.count * (end - begin);
  const bool add_one = gain && args_.one_plus;
  if (entry->dtype == args_.dtype && !add_one) return args_.weights->Read(*entry, box, out);
  std::byte* const stored = Room(&stored_, elements * checkpoint::ElementSize(entry->dtype));
  RETURN_IF_ERROR(args_.weights->Read(*entry, box, stored));
  auto* const convert = add_one ? ConvertOnePlus : ConvertElements;
  convert(entry->dtype, stored, args_.dtype, out, elements);
  return OkStatus();
}

Status TensorWriter::Append(std::span<const std::byte> bytes, TensorStream* stream) {
  RETURN_IF_ERROR(stream->Append(bytes));
  if (args_.progress) args_.progress(std::ssize(bytes));
  return OkStatus();
}

}  // namespace mt::hf
