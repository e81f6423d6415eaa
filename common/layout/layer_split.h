// Which layers each pipeline stage and model chunk holds: evenly, by a list of counts, or by
// Megatron-LM's layout string. A position is a chunk's number in the order of the model: position =
// chunk * stages + stage, so stage i holds positions i, i + stages, ... (Narayanan et al. 2021,
// section 2.2: interleaved stages). Pure; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace mt::layout {

// A range of consecutive layers on one stage (a virtual pipeline stage of Megatron-LM).
struct ModelChunk {
  int stage = 0;
  int chunk = 0;  // index within its stage, from 0 to virtual_stages - 1
  int64_t first_layer = 0;
  int64_t num_layers = 0;  // may be 0: the chunk passes its input on, or holds an end of the model
  bool has_embedding = false;
  bool has_head = false;  // final norm, output matrix and loss
  bool operator==(const ModelChunk&) const = default;
};

class LayerSplit {
 public:
  // Sizes to distribute; all at least 1.
  struct Shape {
    int64_t layers = 0;
    // Pipeline parallel size, and chunks per stage (Megatron's virtual pipeline parallel size).
    int stages = 1;
    int virtual_stages = 1;
  };

  // `layout` is one of
  //   ""             evenly: layers must be a multiple of stages * virtual_stages
  //   "3,5,5,3"      number of layers at each position
  //   "Et|t*2..."    Megatron's string: E embedding, t layer, L head and loss, | end of a
  //                  position, (...)*n or x*n repetition, commas ignored
  // InvalidArgument says what is wrong and which values would fit.
  static StatusOr<LayerSplit> Create(const Shape& shape, std::string_view layout);

  const Shape& shape() const { return shape_; }
  int num_positions() const { return static_cast<int>(chunks_.size()); }
  // All chunks by position, the order in which a microbatch passes through them.
  const std::vector<ModelChunk>& chunks() const { return chunks_; }
  // The chunk of a stage. CHECKs that both indices are in range.
  const ModelChunk& At(int stage, int chunk) const;
  // The chunks of one stage, by chunk index.
  std::vector<ModelChunk> OfStage(int stage) const;
  // Number of layers on a stage, over all of its chunks.
  int64_t LayersOfStage(int stage) const;

 private:
  LayerSplit(const Shape& shape, std::vector<ModelChunk> chunks)
      : shape_(shape), chunks_(std::move(chunks)) {}

  Shape shape_;
  std::vector<ModelChunk> chunks_;
};

}  // namespace mt::layout
