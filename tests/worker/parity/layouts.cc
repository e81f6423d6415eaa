// The table itself and the job overrides of a layout. table_test.cc checks what it covers.
#include "tests/worker/parity/layouts.h"

#include <array>

#include <fmt/format.h>

namespace mt::parity {
namespace {

using enum Family;
using enum Recompute;
using enum Schedule;
using enum Ranks;

constexpr std::array kLayouts = std::to_array<Layout>({
    // One axis at a time.
    {.family = kGpt2, .tp = 2},
    {.family = kLlama, .tp = 2, .sequence_parallel = true, .recompute = kSelective},
    {.family = kLlama, .tp = 4},
    {.family = kGpt2, .tp = 4, .sequence_parallel = true, .recompute = kFull},
    {.family = kGpt2, .pp = 2, .schedule = kGpipe},
    {.family = kLlama, .pp = 2, .recompute = kSelective, .sanitized = true},
    {.family = kGpt2, .pp = 2, .virtual_stages = 2, .schedule = kInterleaved, .ramp = true},
    {.family = kLlama, .pp = 4, .recompute = kFullBlock, .schedule = kGpipe},
    {.family = kGpt2, .pp = 4},
    {.family = kLlama,
     .pp = 4,
     .virtual_stages = 2,
     .recompute = kSelective,
     .schedule = kInterleaved},
    {.family = kGpt2, .dp = 2, .recompute = kSelective, .compare_overlap = true},
    {.family = kGpt2, .dp = 2, .zero_stage = 1, .compare_overlap = true, .sanitized = true},
    {.family = kLlama, .dp = 2, .zero_stage = 1, .recompute = kFull, .ranks = kProcesses},
    // Uneven stages; stages that hold an end of the model only; chunks without a layer.
    {.family = kLlama, .pp = 2, .split = "3,5"},
    {.family = kGpt2, .pp = 4, .split = "E|tttt|tttt|L"},
    {.family = kGpt2,
     .pp = 2,
     .virtual_stages = 2,
     .schedule = kInterleaved,
     .split = "Etttt|ttt||tL"},
    // Two axes.
    {.family = kLlama, .tp = 2, .dp = 2, .sequence_parallel = true, .zero_stage = 1},
    {.family = kGpt2, .tp = 2, .dp = 2, .recompute = kFull, .sanitized = true},
    {.family = kGpt2,
     .tp = 2,
     .dp = 2,
     .zero_stage = 1,
     .recompute = kSelective,
     .compare_overlap = true},
    {.family = kGpt2, .tp = 4, .dp = 2, .sequence_parallel = true, .zero_stage = 1},
    {.family = kLlama, .tp = 4, .dp = 2, .recompute = kSelective},
    {.family = kGpt2, .pp = 2, .dp = 2, .zero_stage = 1, .ramp = true, .compare_overlap = true},
    {.family = kLlama, .pp = 2, .dp = 2, .recompute = kFull, .schedule = kGpipe},
    {.family = kLlama,
     .pp = 2,
     .dp = 2,
     .virtual_stages = 2,
     .zero_stage = 1,
     .recompute = kSelective,
     .schedule = kInterleaved,
     .sanitized = true},
    {.family = kLlama, .pp = 4, .dp = 2, .zero_stage = 1},
    {.family = kGpt2, .pp = 4, .dp = 2, .recompute = kSelective, .schedule = kGpipe},
    {.family = kGpt2,
     .pp = 4,
     .dp = 2,
     .virtual_stages = 2,
     .zero_stage = 1,
     .recompute = kFullBlock,
     .schedule = kInterleaved,
     .compare_overlap = true},
    {.family = kGpt2, .tp = 2, .pp = 2, .sequence_parallel = true, .sanitized = true},
    {.family = kLlama, .tp = 2, .pp = 2, .sequence_parallel = true, .ranks = kProcesses},
    {.family = kLlama, .tp = 2, .pp = 2, .schedule = kGpipe},
    {.family = kLlama,
     .tp = 2,
     .pp = 2,
     .virtual_stages = 2,
     .sequence_parallel = true,
     .recompute = kFull,
     .schedule = kInterleaved},
    {.family = kGpt2, .tp = 2, .pp = 4, .sequence_parallel = true, .recompute = kSelective},
    {.family = kLlama,
     .tp = 2,
     .pp = 4,
     .virtual_stages = 2,
     .schedule = kInterleaved,
     .ranks = kProcesses},
    {.family = kLlama,
     .tp = 4,
     .pp = 2,
     .sequence_parallel = true,
     .recompute = kFull,
     .schedule = kGpipe},
    {.family = kGpt2,
     .tp = 4,
     .pp = 2,
     .virtual_stages = 2,
     .sequence_parallel = true,
     .schedule = kInterleaved},
    {.family = kGpt2, .tp = 4, .pp = 2, .recompute = kSelective},
    // All three.
    {.family = kGpt2,
     .tp = 2,
     .pp = 2,
     .dp = 2,
     .virtual_stages = 2,
     .sequence_parallel = true,
     .zero_stage = 1,
     .recompute = kFull,
     .schedule = kInterleaved,
     .compare_overlap = true,
     .sanitized = true},
    {.family = kLlama,
     .tp = 2,
     .pp = 2,
     .dp = 2,
     .virtual_stages = 2,
     .sequence_parallel = true,
     .zero_stage = 1,
     .recompute = kFull,
     .schedule = kInterleaved,
     .ranks = kProcesses},
    {.family = kLlama, .tp = 2, .pp = 2, .dp = 2, .sequence_parallel = true, .zero_stage = 1},
    {.family = kGpt2, .tp = 2, .pp = 2, .dp = 2, .recompute = kFullBlock, .schedule = kGpipe},
});

std::string_view NameOf(Recompute mode) {
  constexpr std::array<std::string_view, 4> kNames = {"none", "selective", "full", "fullblock"};
  return kNames[static_cast<size_t>(mode)];
}

std::string_view NameOf(Schedule schedule) {
  constexpr std::array<std::string_view, 3> kNames = {"gpipe", "1f1b", "interleaved"};
  return kNames[static_cast<size_t>(schedule)];
}

void Append(std::string_view part, std::string* name) {
  if (!name->empty()) *name += '_';
  *name += part;
}

}  // namespace

std::span<const Layout> Layouts() { return kLayouts; }

std::string_view NameOf(Family family) { return family == kGpt2 ? "gpt2" : "llama"; }

std::string NameOf(const Layout& layout) {
  std::string name;
  if (layout.tp > 1) Append(fmt::format("tp{}", layout.tp), &name);
  if (layout.pp > 1) Append(fmt::format("pp{}", layout.pp), &name);
  if (layout.dp > 1) Append(fmt::format("dp{}", layout.dp), &name);
  if (layout.pp > 1) Append(NameOf(layout.schedule), &name);
  if (layout.virtual_stages > 1) Append(fmt::format("v{}", layout.virtual_stages), &name);
  if (!layout.split.empty()) {
    Append(layout.split.find('L') == std::string_view::npos ? "counts" : "string", &name);
  }
  if (layout.zero_stage > 0) Append(fmt::format("zero{}", layout.zero_stage), &name);
  if (layout.recompute != kNone) Append(NameOf(layout.recompute), &name);
  if (layout.sequence_parallel) Append("sp", &name);
  if (layout.ramp) Append("ramp", &name);
  if (layout.ranks == kProcesses) Append("processes", &name);
  Append(NameOf(layout.family), &name);
  return name;
}

std::vector<std::string> OverridesOf(const Layout& layout) {
  std::vector<std::string> fields = {
      fmt::format("parallel.tensor={}", layout.tp),
      fmt::format("parallel.pipeline={}", layout.pp),
      fmt::format("parallel.data={}", layout.dp),
      fmt::format("parallel.virtual_stages={}", layout.virtual_stages),
      fmt::format("parallel.sequence_parallel={}", layout.sequence_parallel),
      fmt::format("parallel.zero_stage={}", layout.zero_stage),
      fmt::format("parallel.bucket_size={}KiB", 8 / layout.tp),
  };
  // Collectives of processes cost the most: half as many of twice the size.
  if (layout.ranks == kProcesses) fields.emplace_back("training.micro_batch_size=4");
  if (layout.pp > 1) fields.push_back(fmt::format("parallel.schedule={}", NameOf(layout.schedule)));
  if (!layout.split.empty()) fields.push_back(fmt::format("parallel.layout={}", layout.split));
  switch (layout.recompute) {
    case kNone:
      break;
    case kSelective:
      fields.emplace_back("training.recompute.mode=selective");
      break;
    case kFull:
    case kFullBlock:
      fields.emplace_back("training.recompute.mode=full");
      fields.push_back(fmt::format("training.recompute.method={}",
                                   layout.recompute == kFull ? "uniform" : "block"));
      fields.push_back(
          fmt::format("training.recompute.layers={}", layout.recompute == kFull ? 2 : 1));
      break;
  }
  return fields;
}

}  // namespace mt::parity
