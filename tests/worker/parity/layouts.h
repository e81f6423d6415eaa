// The layouts that parity tests train: how each shards the model, its batches and its memory, and
// what else is checked with it. They are one table, so that coverage can be read and counted.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mt::parity {

// kGpt2: learned positions, LayerNorm, GELU, biases, tied tables. kLlama: RoPE, RMSNorm, SwiGLU,
// grouped queries, no biases, untied.
enum class Family : uint8_t { kGpt2, kLlama };
enum class Recompute : uint8_t { kNone, kSelective, kFull, kFullBlock };
enum class Schedule : uint8_t { kGpipe, k1f1b, kInterleaved };
// How the ranks live: threads of the test, or processes over Gloo.
enum class Ranks : uint8_t { kThreads, kProcesses };

struct Layout {
  Family family = Family::kGpt2;
  int tp = 1;
  int pp = 1;
  int dp = 1;
  int virtual_stages = 1;
  bool sequence_parallel = false;
  int zero_stage = 0;
  Recompute recompute = Recompute::kNone;
  Schedule schedule = Schedule::k1f1b;  // used where pp > 1
  std::string_view split = {};          // parallel.layout; empty: as many layers everywhere
  bool ramp = false;                    // the batch grows while training
  bool compare_overlap = false;         // the same bits without overlap, too
  bool sanitized = false;               // runs under sanitizers, too
  Ranks ranks = Ranks::kThreads;
};

inline constexpr int kLayers = 8;
inline constexpr int kMaxWorld = 8;

inline int World(const Layout& layout) { return layout.tp * layout.pp * layout.dp; }

std::span<const Layout> Layouts();

// "tp2_pp2_dp2_interleaved_v2_zero1_full_sp_gpt2": what differs from one rank, then the model.
std::string NameOf(const Layout& layout);

// Fields of the job that lay it out so ("parallel.tensor=2", ...).
std::vector<std::string> OverridesOf(const Layout& layout);

std::string_view NameOf(Family family);

}  // namespace mt::parity
