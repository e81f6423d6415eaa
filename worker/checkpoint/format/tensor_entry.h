// A tensor of a checkpoint and the slices in which it is stored, as manifests tell of them. Plain
// values, pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "worker/checkpoint/format/block_digests.h"

namespace mt::checkpoint {

// One rectangular part of a tensor, stored contiguously in one file.
struct SliceEntry {
  std::string file;             // name within the checkpoint's folder
  std::string tensor;           // its name in that safetensors file
  std::vector<int64_t> offset;  // of its first element, in the global tensor
  std::vector<int64_t> shape;
  BlockDigests digests;  // of its blocks, by the manifest's block_bytes
};

// A logical tensor, without padding and independent of the parallel layout.
struct TensorEntry {
  std::string dtype;  // safetensors' name: "F32", "F64"
  std::vector<int64_t> shape;
  std::vector<SliceEntry> slices;  // those that are known
};

// By key: "weights/<parameter>", "exp_avg/<parameter>" and "exp_avg_sq/<parameter>".
using TensorTable = std::map<std::string, TensorEntry>;

// Elements of a shape that was checked.
int64_t CountElements(const std::vector<int64_t>& shape);

// Checks numbers of an untrusted file. kDataLoss, naming the tensor: its type is unknown, its size
// impossible; a slice reaches outside it, has another number of blocks than its length asks for, or
// lies in a file whose name leads out of the folder.
Status CheckTensor(const std::string& key, const TensorEntry& tensor, int64_t block_bytes);
// Checks that the slices of a tensor that was checked hold each of its elements once; kDataLoss.
Status CheckWhole(const std::string& key, const TensorEntry& tensor);

// Whether it names a file in the folder itself.
bool IsPlainName(std::string_view file);

}  // namespace mt::checkpoint
