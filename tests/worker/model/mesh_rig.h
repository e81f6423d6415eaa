// A network over tensor ranks (threads) and pipeline stages (driven by hand), for comparison with a
// single rank. Results are gathered by logical tensor: parts are assembled, partial sums and the
// two copies of a tied table are added.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/worker/model/model_rig.h"

namespace mt::model {

// Networks that 4 tensor ranks can share, in fp64, both dropouts 0.1: as SmallConfig; with RoPE,
// grouped-query attention, RMSNorm, SwiGLU, an untied head and no bias.
GptConfig GptLike();
GptConfig LlamaLike();
// Microbatches of consecutive samples, numbered beyond 32 bits.
std::vector<data::Microbatch> RandomBatches(const GptConfig& config, int count);

struct MeshLayout {
  int tp = 1;
  bool sequence_parallel = false;
  // Layers of each position; empty: all in one. Position i is chunk i / stages of stage i % stages.
  std::vector<int64_t> layers;
  int stages = 1;
  // All forwards before all backwards, every microbatch in a slot of its own; else one by one.
  bool gpipe = true;
};

// Bytes that a slot keeps on a rank, by the design's formula (worker/model/README.md), of a network
// without QK norm and parallel residual in fp64. Allocations add alignment.
struct KeptFormula {
  explicit KeptFormula(const GptConfig& config);
  int64_t Layer() const;
  int64_t SelectiveLayer() const;
  int64_t Residual() const;  // a boundary's tensor, or a recomputed group
  // Most that alignment adds to this many layers and residuals.
  static int64_t Slack(int64_t count) { return 13 * count * memory::kAlignBytes; }

  int64_t tokens, rows, hidden, query, key, ffn, pre, heads, statistics;
};

struct MeshResult {
  Sums sums;
  Sums evaluation;                                   // of the same batches, before the step
  std::map<std::string, std::vector<double>> grads;  // logical elements
  // Rank 0's, by position: bytes of kept activations and largest scratch.
  std::vector<int64_t> kept_bytes;
  std::vector<int64_t> workspace_bytes;
  std::vector<std::vector<uint8_t>> grad_bytes;  // by tensor rank and stage
};

// One evaluation and one step over the batches. EXPECTs that all tensor ranks have the same sums,
// the same complete gradients and outputs of what they replicate, and zero gradients in
// padding, to the bit. Initial values are the engine's, moved by noise that depends on name and
// index alone.
MeshResult RunMesh(const GptConfig& config, const MeshLayout& layout,
                   const std::vector<data::Microbatch>& batches);

// EXPECTs losses to agree within 1e-12 relative, and every gradient within 1e-12 of its norm plus
// 1e-16 of the largest norm (some true gradients are zero and rounding noise in practice).
void ExpectSame(const MeshResult& got, const MeshResult& want);

}  // namespace mt::model
