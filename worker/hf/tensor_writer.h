// Brings one tensor of an export from a checkpoint into a file, in bounded memory. Legend: R rows
// (outputs) of a matrix, C columns (inputs).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "worker/hf/tensor_stream.h"
#include "worker/hf/tensors.h"
#include "worker/hf/weight_files.h"

namespace mt::hf {

// Used by one thread.
class TensorWriter {
 public:
  struct Args {
    WeightFiles* weights = nullptr;
    const std::map<std::string, Shape>* parameters = nullptr;
    std::string dtype;      // of the file
    bool one_plus = false;  // gains are stored as g for 1 + g
    int64_t buffer_bytes = 0;
    std::function<void(int64_t bytes)> progress;  // bytes written; may be empty
  };
  explicit TensorWriter(Args args) : args_(std::move(args)) {}

  // Appends the bytes of a tensor. Errors: WeightFiles's and the stream's.
  Status Write(const HfTensor& tensor, TensorStream* stream);

 private:
  Status WriteRows(const HfTensor& tensor, const Rows& run, TensorStream* stream);
  Status WriteZeros(int64_t count, TensorStream* stream);
  Status WriteTransposed(const HfTensor& tensor, TensorStream* stream);
  // Reads rows of a parameter, columns [begin, end), in the file's type.
  Status ReadBox(const Rows& rows, int64_t begin, int64_t end, bool gain, std::byte* out);
  Status Append(std::span<const std::byte> bytes, TensorStream* stream);

  const Args args_;
  std::vector<std::byte> stored_, written_, turned_;
};

}  // namespace mt::hf
