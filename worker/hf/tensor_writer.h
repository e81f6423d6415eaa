// Brings the tensors of an export from a checkpoint into a file, several side by side, each in
// bounded memory. Blocking.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>

#include "worker/checkpoint/format/manifest.h"
#include "worker/hf/tensor_file.h"
#include "worker/hf/tensors.h"

namespace mt::hf {

struct TensorArgs {
  std::string folder;  // of the checkpoint
  const checkpoint::Manifest* manifest = nullptr;
  const std::map<std::string, Shape>* parameters = nullptr;
  std::string dtype;         // of the file
  bool one_plus = false;     // gains are stored as g for 1 + g
  int64_t buffer_bytes = 0;  // of each thread, three times
  int threads = 1;
  // Bytes written, from one thread at a time; may be empty.
  std::function<void(int64_t bytes)> progress;
};

// Writes these tensors, one behind the other from the file's first byte of tensors on; `threads`
// write side by side, each a tensor at a time. Errors: WeightFiles's and the file's, of the first
// tensor that has one; no thread is left.
Status WriteTensors(const TensorArgs& args, std::span<const HfTensor> tensors, TensorFile* file);

}  // namespace mt::hf
