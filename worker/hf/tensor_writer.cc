// A transposed matrix is read in blocks of its columns, which are rows of the file: as many as the
// buffer holds. Each thread has its own readers and buffers.
#include "worker/hf/tensor_writer.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/mutex.h"
#include "worker/checkpoint/format/parallel_tasks.h"
#include "worker/checkpoint/format/safetensors.h"
#include "worker/hf/element_types.h"
#include "worker/hf/weight_files.h"

namespace mt::hf {
namespace {

// Tiles keep both sides of a transposition in cache.
constexpr int64_t kTile = 32;

// [rows, columns] to [columns, rows], of elements of kBytes, which lie at any address.
template <size_t kBytes>
void TransposeElements(const std::byte* in, int64_t rows, int64_t columns, std::byte* out) {
  constexpr auto kElement = static_cast<int64_t>(kBytes);
  for (int64_t r0 = 0; r0 < rows; r0 += kTile) {
    for (int64_t c0 = 0; c0 < columns; c0 += kTile) {
      const int64_t r1 = std::min(rows, r0 + kTile), c1 = std::min(columns, c0 + kTile);
      for (int64_t c = c0; c < c1; ++c) {
        for (int64_t r = r0; r < r1; ++r)
          std::memcpy(out + (c * rows + r) * kElement, in + (r * columns + c) * kElement, kBytes);
      }
    }
  }
}

void Transpose(const std::byte* in, int64_t rows, int64_t columns, int64_t element,
               std::byte* out) {
  if (element == 2) return TransposeElements<2>(in, rows, columns, out);
  if (element == 4) return TransposeElements<4>(in, rows, columns, out);
  CHECK_EQ(element, 8);
  TransposeElements<8>(in, rows, columns, out);
}

// Grows only: a vector clears what it gets anew.
std::byte* Room(std::vector<std::byte>* buffer, int64_t bytes) {
  if (std::ssize(*buffer) < bytes) buffer->resize(static_cast<size_t>(bytes));
  return buffer->data();
}

// One thread's. `told`: after each piece, its bytes.
class TensorWriter {
 public:
  TensorWriter(const TensorArgs& args, TensorFile* file, std::function<void(int64_t)> told)
      : args_(args), file_(file), told_(std::move(told)), weights_(args.folder, *args.manifest) {}

  // Writes a tensor, from its offset in the file's tensors on.
  Status Write(const HfTensor& tensor, int64_t offset);

 private:
  Status WriteRows(const HfTensor& tensor, const Rows& run);
  Status WriteZeros(int64_t count);
  Status WriteTransposed(const HfTensor& tensor);
  StatusOr<const checkpoint::TensorEntry*> Find(const std::string& parameter) const {
    return weights_.Find(parameter, args_.parameters->at(parameter));
  }
  // Reads rows of a parameter, columns [begin, end), in the file's type.
  Status ReadBox(const Rows& rows, int64_t begin, int64_t end, bool gain, std::byte* out);
  // Behind what came before of this tensor.
  Status Append(std::span<const std::byte> bytes);

  const TensorArgs& args_;
  TensorFile* const file_;
  const std::function<void(int64_t)> told_;
  WeightFiles weights_;
  int64_t at_ = 0;  // of the next byte
  std::vector<std::byte> stored_, written_, turned_;
};

Status TensorWriter::Write(const HfTensor& tensor, int64_t offset) {
  at_ = offset;
  if (tensor.transposed) return WriteTransposed(tensor);
  for (const Rows& run : tensor.rows) RETURN_IF_ERROR(WriteRows(tensor, run));
  return OkStatus();
}

Status TensorWriter::WriteRows(const HfTensor& tensor, const Rows& run) {
  const int64_t columns = tensor.shape.size() == 2 ? tensor.shape[1] : 1;
  if (run.parameter.empty()) return WriteZeros(run.count * columns);
  const int64_t element = checkpoint::ElementSize(args_.dtype);
  const int64_t at_once = std::max<int64_t>(1, args_.buffer_bytes / (8 * columns));
  for (int64_t done = 0; done < run.count; done += at_once) {
    const int64_t count = std::min(at_once, run.count - done);
    const int64_t bytes = count * columns * element;
    std::byte* const out = Room(&written_, bytes);
    RETURN_IF_ERROR(
        ReadBox({run.parameter, run.first + done, count}, 0, columns, tensor.gain, out));
    RETURN_IF_ERROR(Append({out, static_cast<size_t>(bytes)}));
  }
  return OkStatus();
}

Status TensorWriter::WriteZeros(int64_t count) {
  int64_t left = count * checkpoint::ElementSize(args_.dtype);
  // Of every floating type.
  const std::vector<std::byte> zeros(
      static_cast<size_t>(std::min(left, std::max<int64_t>(1, args_.buffer_bytes))));
  while (left > 0) {
    const int64_t bytes = std::min(left, std::ssize(zeros));
    RETURN_IF_ERROR(Append(std::span(zeros).first(static_cast<size_t>(bytes))));
    left -= bytes;
  }
  return OkStatus();
}

Status TensorWriter::WriteTransposed(const HfTensor& tensor) {
  const int64_t inputs = tensor.shape[0], outputs = tensor.shape[1];
  const int64_t element = checkpoint::ElementSize(args_.dtype);
  ASSIGN_OR_RETURN(const checkpoint::TensorEntry* first, Find(tensor.rows.at(0).parameter));
  const int64_t larger = std::max(element, checkpoint::ElementSize(first->dtype));
  const int64_t at_once = std::max<int64_t>(1, args_.buffer_bytes / (larger * outputs));
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
    RETURN_IF_ERROR(Append({turned, static_cast<size_t>(bytes)}));
  }
  return OkStatus();
}

Status TensorWriter::ReadBox(const Rows& rows, int64_t begin, int64_t end, bool gain,
                             std::byte* out) {
  ASSIGN_OR_RETURN(const checkpoint::TensorEntry* entry, Find(rows.parameter));
  const bool matrix = entry->shape.size() == 2;
  const checkpoint::Box box = matrix
                                  ? checkpoint::Box{{rows.first, begin}, {rows.count, end - begin}}
                                  : checkpoint::Box{{rows.first}, {rows.count}};
  const int64_t elements = rows.count * (end - begin);
  const bool add_one = gain && args_.one_plus;
  if (entry->dtype == args_.dtype && !add_one) return weights_.Read(*entry, box, out);
  std::byte* const stored = Room(&stored_, elements * checkpoint::ElementSize(entry->dtype));
  RETURN_IF_ERROR(weights_.Read(*entry, box, stored));
  auto* const convert = add_one ? ConvertOnePlus : ConvertElements;
  convert(entry->dtype, stored, args_.dtype, out, elements);
  return OkStatus();
}

Status TensorWriter::Append(std::span<const std::byte> bytes) {
  RETURN_IF_ERROR(file_->WriteAt(at_, bytes));
  at_ += std::ssize(bytes);
  told_(std::ssize(bytes));
  return OkStatus();
}

}  // namespace

Status WriteTensors(const TensorArgs& args, std::span<const HfTensor> tensors, TensorFile* file) {
  std::vector<int64_t> offsets;
  int64_t bytes = 0;
  offsets.reserve(tensors.size());
  for (const HfTensor& tensor : tensors) {
    offsets.push_back(bytes);
    bytes += checkpoint::TensorBytes(args.dtype, tensor.shape);
  }
  base::Mutex mu;  // of progress
  const auto told = [&](int64_t count) {
    base::MutexLock lock(&mu);
    if (args.progress) args.progress(count);
  };
  std::vector<Status> written(tensors.size());
  std::atomic<size_t> next = 0;
  std::atomic<bool> failed = false;
  checkpoint::RunTasks(args.threads, args.threads, [&](int64_t) {
    TensorWriter writer(args, file, told);
    for (size_t i = next++; i < tensors.size() && !failed; i = next++) {
      written[i] = writer.Write(tensors[i], offsets[i]);
      if (!written[i].ok()) failed = true;
    }
  });
  for (const Status& status : written) RETURN_IF_ERROR(status);
  return OkStatus();
}

}  // namespace mt::hf
