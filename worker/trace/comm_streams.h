// A rank's timed communication (worker/parallel/comm_spans.h) as streams of its trace: one per
// group and link that it uses, and what of the compute stream is exposed to them. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/layout/mesh.h"
#include "worker/parallel/comm_spans.h"
#include "worker/trace/clock_map.h"

namespace megatrain::v1 {
class RankTrace;
}

namespace mt::trace {

// What the groups and links of a rank are called, by use. Links are named by the stages that they
// join, sender first ("pp-act 0>1"); all others as in CommUseTraits.
struct CommNames {
  std::array<std::string, parallel::kNumCommUses> sends;     // of calls
  std::array<std::string, parallel::kNumCommUses> receives;  // of waits for what arrives
  std::array<int, parallel::kNumCommUses> receiver{};  // of what is sent over a link: world rank
};
// `chunks`: per stage, as RankGroups::Args.
CommNames NamesOf(const layout::Mesh& mesh, int rank, int chunks);

// The use of the stream, or of the label of an exposed span, with this name. CHECKs that there is
// one.
parallel::CommUse UseOf(std::string_view name);

// Adds the streams of a record to a trace whose steps and base are set. `to_host`: from the
// record's clock to that of the trace's host.
void AddStreams(const parallel::CommRecord& record, const CommNames& names, const ClockMap& to_host,
                megatrain::v1::RankTrace* out);

}  // namespace mt::trace
