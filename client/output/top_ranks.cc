// Ranks stand in the order of their numbers, in which tensor ranks are neighbours.
#include "client/output/top_ranks.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "client/output/format.h"
#include "client/output/top_fields.h"
#include "common/layout/mesh.h"
#include "common/spec/derived.h"
#include "megatrain/v1/reading.pb.h"
#include "megatrain/v1/types.pb.h"

namespace mt::client {
namespace {

namespace v1 = megatrain::v1;

constexpr int64_t kFreshMs = 5'000;  // beats come every second
constexpr size_t kShownPhases = 4;
constexpr int kCellGap = 3;

std::string SecondsText(double seconds) {
  if (seconds < 10) return fmt::format("{:.3f}s", seconds);
  return seconds < 1000 ? fmt::format("{:.1f}s", seconds) : FormatDuration(seconds);
}

int64_t DeviceBytes(const v1::RankReading& reading) {
  int64_t sum = 0;
  for (const auto& [kind, bytes] : reading.memory_bytes()) sum += bytes;
  return sum;
}

const v1::RankReading* Find(const v1::RankReadings* readings, int rank) {
  if (readings == nullptr) return nullptr;
  const auto at =
      std::ranges::find(readings->ranks(), rank, [](const auto& r) { return r.rank(); });
  return at == readings->ranks().end() ? nullptr : &*at;
}

bool IsFresh(const v1::RankReading* reading) {
  return reading != nullptr && reading->age_ms() <= kFreshMs;
}

// The phases by their mean share over the ranks, the largest first.
std::vector<std::string> LargestPhases(const v1::RankReadings* readings) {
  std::map<std::string, double> sums;
  if (readings != nullptr) {
    for (const v1::RankReading& reading : readings->ranks())
      for (const auto& [phase, share] : reading.phase_shares()) sums[phase] += share;
  }
  std::vector<std::pair<double, std::string>> order;
  for (const auto& [phase, sum] : sums)
    if (sum > 0) order.emplace_back(-sum, phase);
  std::ranges::sort(order);
  std::vector<std::string> names;
  names.reserve(order.size());
  for (const auto& [sum, phase] : order) names.push_back(phase);
  return names;
}

std::string ShareText(const std::string& phase, double share) {
  return fmt::format("{} {:.0f}%", phase, 100 * share);
}

// What stands where a step time would.
std::string StateOf(const v1::Job& job, int rank, const v1::RankReading* reading) {
  const v1::RankState state = job.ranks(rank).state();
  if (state != v1::TRAINING || reading == nullptr) return v1::RankState_Name(state);
  return "silent";
}

std::vector<std::string> CellOf(const v1::Job& job, const v1::RankReading* reading, int rank,
                                const std::vector<std::string>& phases, bool gpus) {
  std::vector<std::string> fields = {fmt::format("r{}", rank)};
  if (!IsFresh(reading) || reading->step_seconds() <= 0) {
    fields.push_back(StateOf(job, rank, reading));
    return fields;
  }
  fields.push_back(SecondsText(reading->step_seconds()));
  fields.push_back(FormatBytes(gpus ? DeviceBytes(*reading) : reading->host_memory_bytes()));
  if (gpus) {
    fields.push_back(reading->has_gpu_utilization()
                         ? fmt::format("gpu {:.0f}%", 100 * reading->gpu_utilization())
                         : "gpu -");
  }
  for (const std::string& phase : phases) {
    const auto share = reading->phase_shares().find(phase);
    fields.push_back(ShareText(phase, share == reading->phase_shares().end() ? 0 : share->second));
  }
  return fields;
}

struct Cells {
  std::vector<std::vector<std::string>> fields;  // by rank
  std::vector<int> widths;                       // of the fields
};

Cells MakeCells(const v1::Job& job, const v1::RankReadings* readings) {
  bool gpus = false;
  for (const v1::RankStatus& rank : job.ranks()) gpus = gpus || !rank.gpu().empty();
  std::vector<std::string> phases = LargestPhases(readings);
  phases.resize(std::min(phases.size(), kShownPhases));
  Cells cells;
  for (int rank = 0; rank < job.ranks_size(); ++rank) {
    cells.fields.push_back(CellOf(job, Find(readings, rank), rank, phases, gpus));
    const std::vector<std::string>& fields = cells.fields.back();
    if (cells.widths.size() < fields.size()) cells.widths.resize(fields.size());
    for (size_t i = 0; i < fields.size(); ++i)
      cells.widths[i] = std::max(cells.widths[i], static_cast<int>(DisplayWidth(fields[i])));
  }
  return cells;
}

// Columns of a cell with its first `count` fields, with the mark before it.
int CellWidth(const Cells& cells, size_t count) {
  int width = 1;
  for (size_t i = 0; i < std::min(count, cells.widths.size()); ++i)
    width += cells.widths[i] + (i == 0 ? 0 : 1);
  return width;
}

std::string CellText(const Cells& cells, int rank, size_t count, bool selected) {
  const auto& fields = cells.fields[static_cast<size_t>(rank)];
  std::string text = selected ? ">" : " ";
  for (size_t i = 0; i < std::min(count, cells.widths.size()); ++i) {
    const std::string field = i < fields.size() ? fields[i] : "";
    const auto room = static_cast<size_t>(cells.widths[i]) - DisplayWidth(field);
    text += (i == 0 ? "" : " ") + field + std::string(room, ' ');
  }
  return text;
}

// The mesh where it covers the job's ranks, else one that is a row of single ranks.
layout::MeshSizes MeshOf(const v1::Job& job) {
  const v1::Parallel& parallel = job.spec().parallel();
  for (const int64_t size :
       {parallel.tensor(), parallel.context(), parallel.data(), parallel.pipeline()}) {
    if (size < 1 || size > job.ranks_size()) return {.dp = std::max(1, job.ranks_size())};
  }
  const layout::MeshSizes sizes = spec::MeshSizesOf(job.spec());
  const int64_t world = int64_t{sizes.tp} * sizes.cp * sizes.dp * sizes.pp;
  return world == job.ranks_size() ? sizes : layout::MeshSizes{.dp = std::max(1, job.ranks_size())};
}

// "pp 1 dp 0": the row's place, without axes of size 1.
std::string RowLabel(const layout::MeshSizes& sizes, int rank) {
  const int row = rank / sizes.tp;
  std::vector<std::string> parts;
  if (sizes.pp > 1) parts.push_back(fmt::format("pp {}", row / (sizes.cp * sizes.dp)));
  if (sizes.dp > 1) parts.push_back(fmt::format("dp {}", row / sizes.cp % sizes.dp));
  if (sizes.cp > 1) parts.push_back(fmt::format("cp {}", row % sizes.cp));
  return fmt::format("{}", fmt::join(parts, " "));
}

std::string Cut(std::string line, int width) {
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return width > 0 && static_cast<int>(DisplayWidth(line)) > width ? "" : line;
}

}  // namespace

int RanksInRow(const v1::Job& job) { return MeshOf(job).tp; }

RankGrid DrawRanks(const v1::Job& job, const v1::RankReadings* readings, int selected, int width) {
  const layout::MeshSizes sizes = MeshOf(job);
  const Cells cells = MakeCells(job, readings);
  int label = 0;
  for (int rank = 0; rank < job.ranks_size(); rank += sizes.tp)
    label = std::max(label, static_cast<int>(RowLabel(sizes, rank).size()));
  const auto line_width = [&](int beside, size_t count) {
    return label + beside * (CellWidth(cells, count) + kCellGap);
  };
  // Labels go where not even rank and step time fit behind them.
  if (width > 0 && line_width(1, 2) > width) label = 0;
  int beside = sizes.tp;
  while (width > 0 && beside > 1 && line_width(beside, 2) > width) --beside;
  size_t count = cells.widths.size();
  while (width > 0 && count > 1 && line_width(beside, count) > width) --count;
  RankGrid grid;
  for (int row = 0; row < job.ranks_size(); row += sizes.tp) {
    for (int begin = row; begin < row + sizes.tp; begin += beside) {
      std::string line;
      if (label > 0) line = fmt::format("{:<{}}", begin == row ? RowLabel(sizes, row) : "", label);
      for (int rank = begin; rank < std::min(begin + beside, row + sizes.tp); ++rank) {
        line +=
            std::string(kCellGap - 1, ' ') + CellText(cells, rank, count, rank == selected) + " ";
        if (rank == selected) grid.selected_line = static_cast<int>(grid.lines.size());
      }
      grid.lines.push_back(Cut(std::move(line), width));
    }
  }
  return grid;
}

std::vector<std::string> DescribeRank(const v1::Job& job, const v1::RankReadings* readings,
                                      int rank, int width, const Style& style) {
  if (rank < 0 || rank >= job.ranks_size()) return {};
  const v1::RankStatus& status = job.ranks(rank);
  const v1::RankReading* reading = Find(readings, rank);
  const std::string state = v1::RankState_Name(status.state());
  std::vector<TopField> where = {{.text = fmt::format("rank {}", rank), .goes = 0},
                                 {.text = state, .goes = 2, .tone = ToneOfState(state)},
                                 {.text = spec::RankPlaceText(job.spec(), rank), .goes = 3},
                                 {.text = "node " + status.node(), .goes = 5}};
  if (!status.gpu().empty()) where.push_back({.text = ShortUuid(status.gpu()), .goes = 6});
  if (reading == nullptr) {
    where.push_back({.text = "nothing read yet", .goes = 4, .tone = Tone::kDim});
    return {FitFields(std::move(where), width, style)};
  }
  where.push_back({.text = fmt::format("step {}", reading->step()), .goes = 4});
  if (reading->step_seconds() > 0)
    where.push_back({.text = SecondsText(reading->step_seconds()), .goes = 1});
  if (reading->has_gpu_utilization())
    where.push_back(
        {.text = fmt::format("gpu {:.0f}%", 100 * reading->gpu_utilization()), .goes = 1});
  if (!IsFresh(reading)) {
    const double age = static_cast<double>(reading->age_ms()) / 1e3;
    where.push_back(
        {.text = fmt::format("read {} ago", FormatDuration(age)), .goes = 1, .tone = Tone::kBad});
  }
  std::vector<TopField> phases = {{.text = "phases", .goes = 0}};
  std::vector<std::pair<double, std::string>> shares;
  for (const auto& [phase, share] : reading->phase_shares()) shares.emplace_back(-share, phase);
  std::ranges::sort(shares);
  for (const auto& [share, phase] : shares) {
    if (share < 0)
      phases.push_back({.text = ShareText(phase, -share), .goes = static_cast<int>(phases.size())});
  }
  std::vector<TopField> memory = {
      {.text = "memory", .goes = 0},
      {.text = "process " + FormatBytes(reading->host_memory_bytes()), .goes = 1}};
  const std::map<std::string, int64_t> kinds(reading->memory_bytes().begin(),
                                             reading->memory_bytes().end());
  for (const auto& [kind, bytes] : kinds) {
    if (bytes > 0)
      memory.push_back(
          {.text = kind + " " + FormatBytes(bytes), .goes = static_cast<int>(memory.size())});
  }
  return {FitFields(std::move(where), width, style), FitFields(std::move(phases), width, style),
          FitFields(std::move(memory), width, style)};
}

}  // namespace mt::client
