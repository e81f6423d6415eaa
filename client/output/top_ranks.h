// The ranks of one job for `mtctl top`: the grid of its mesh, a row for each place along pipeline,
// data and context, a cell for each tensor rank; and all that is known of one rank. Pure.
#pragma once

#include <string>
#include <vector>

#include "client/output/style.h"

namespace megatrain::v1 {
class Job;
class RankReadings;
}  // namespace megatrain::v1

namespace mt::client {

struct RankGrid {
  std::vector<std::string> lines;
  int selected_line = 0;
};

// Every cell has the same fields: rank, step time (or what keeps it from one), memory, GPU
// utilisation, the largest phases; as many as fit. Cells that do not fit beside each other go on in
// the next line.
RankGrid DrawRanks(const megatrain::v1::Job& job, const megatrain::v1::RankReadings* readings,
                   int selected, int width);

// Up to three lines on one rank: where it is and how fast, its phases, its memory.
std::vector<std::string> DescribeRank(const megatrain::v1::Job& job,
                                      const megatrain::v1::RankReadings* readings, int rank,
                                      int width, const Style& style);

// Ranks beside each other in the grid: of one tensor group.
int RanksInRow(const megatrain::v1::Job& job);

}  // namespace mt::client
