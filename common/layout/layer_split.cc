// Three spellings of a layout reduce to layer counts per position, from which the chunks follow.
#include "common/layout/layer_split.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <utility>

#include "common/base/check.h"
#include "common/layout/layout_string.h"

namespace mt::layout {
namespace {

Status CheckShape(const LayerSplit::Shape& shape) {
  if (shape.layers < 1 || shape.stages < 1 || shape.virtual_stages < 1) {
    return base::InvalidArgument(
        "{} layers on {} stages with {} chunks each: all must be at least 1", shape.layers,
        shape.stages, shape.virtual_stages);
  }
  return OkStatus();
}

StatusOr<std::vector<int64_t>> EvenCounts(const LayerSplit::Shape& shape, int positions) {
  if (shape.layers % positions == 0) {
    return std::vector<int64_t>(static_cast<size_t>(positions), shape.layers / positions);
  }
  const int64_t below = shape.layers / positions * positions;
  return base::InvalidArgument(
      "{} layers do not spread evenly over pipeline {} x virtual_stages {} = {}; nearest: {}{}, or "
      "give parallel.layout",
      shape.layers, shape.stages, shape.virtual_stages, positions,
      below > 0 ? fmt::format("{} or ", below) : "", below + positions);
}

StatusOr<std::vector<int64_t>> ListCounts(std::string_view text) {
  std::vector<int64_t> counts;
  while (true) {
    const size_t comma = text.find(',');
    std::string_view field = text.substr(0, comma);
    while (!field.empty() && field.front() == ' ') field.remove_prefix(1);
    while (!field.empty() && field.back() == ' ') field.remove_suffix(1);
    int64_t value = 0;
    const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
    if (error != std::errc() || end != field.data() + field.size() || value < 0) {
      return base::InvalidArgument("'{}' is not a number of layers", field);
    }
    counts.push_back(value);
    if (comma == std::string_view::npos) return counts;
    text.remove_prefix(comma + 1);
  }
}

bool IsList(std::string_view layout) {
  return layout.find_first_not_of("0123456789, ") == std::string_view::npos;
}

Status CheckCounts(const LayerSplit::Shape& shape, const std::vector<int64_t>& counts,
                   int positions) {
  if (static_cast<int>(counts.size()) != positions) {
    return base::InvalidArgument(
        "the layout has {} positions, but pipeline {} x virtual_stages {} = {}", counts.size(),
        shape.stages, shape.virtual_stages, positions);
  }
  const int64_t sum = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  if (sum == shape.layers) return OkStatus();
  return base::InvalidArgument("the layout places {} layers, but the model has {}", sum,
                               shape.layers);
}

}  // namespace

StatusOr<LayerSplit> LayerSplit::Create(const Shape& shape, std::string_view layout) {
  RETURN_IF_ERROR(CheckShape(shape));
  const int positions = shape.stages * shape.virtual_stages;
  std::vector<int64_t> counts;
  if (layout.empty()) {
    ASSIGN_OR_RETURN(counts, EvenCounts(shape, positions));
  } else if (IsList(layout)) {
    ASSIGN_OR_RETURN(counts, ListCounts(layout));
  } else {
    ASSIGN_OR_RETURN(counts, CountsOfLayoutString(layout));
  }
  RETURN_IF_ERROR(CheckCounts(shape, counts, positions));
  std::vector<ModelChunk> chunks;
  int64_t next_layer = 0;
  for (int position = 0; position < positions; ++position) {
    const int64_t count = counts[static_cast<size_t>(position)];
    chunks.push_back({.stage = position % shape.stages,
                      .chunk = position / shape.stages,
                      .first_layer = next_layer,
                      .num_layers = count,
                      .has_embedding = position == 0,
                      .has_head = position == positions - 1});
    next_layer += count;
  }
  return LayerSplit(shape, std::move(chunks));
}

const ModelChunk& LayerSplit::At(int stage, int chunk) const {
  CHECK(stage >= 0 && stage < shape_.stages && chunk >= 0 && chunk < shape_.virtual_stages)
      << "stage " << stage << " chunk " << chunk;
  return chunks_[static_cast<size_t>(chunk) * static_cast<size_t>(shape_.stages) +
                 static_cast<size_t>(stage)];
}

std::vector<ModelChunk> LayerSplit::OfStage(int stage) const {
  std::vector<ModelChunk> chunks;
  chunks.reserve(static_cast<size_t>(shape_.virtual_stages));
  for (int chunk = 0; chunk < shape_.virtual_stages; ++chunk) chunks.push_back(At(stage, chunk));
  return chunks;
}

int64_t LayerSplit::LayersOfStage(int stage) const {
  int64_t layers = 0;
  for (int chunk = 0; chunk < shape_.virtual_stages; ++chunk) layers += At(stage, chunk).num_layers;
  return layers;
}

}  // namespace mt::layout
