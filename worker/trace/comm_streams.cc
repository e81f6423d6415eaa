// Calls go to the stream of their group or link; waits and calls on the compute stream itself are
// what is exposed.
#include "worker/trace/comm_streams.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "common/base/check.h"
#include "common/layout/group_axes.h"
#include "common/report/trace_stream.h"
#include "megatrain/v1/trace.pb.h"
#include "worker/parallel/pipeline/edges.h"

namespace mt::trace {
namespace {

namespace v1 = megatrain::v1;
using parallel::CommSpan;
using parallel::CommUse;
using parallel::SpanKind;

// How far spans that follow each other may seem to overlap: CUDA's events tell a microsecond, as
// floats counted from the first span.
int64_t SlackNanos(const parallel::CommRecord& record) {
  constexpr int64_t kResolution = 2'000;
  constexpr double kFloatSteps = 1 << 23;
  if (record.spans.empty()) return kResolution;
  double first = record.spans.front().begin, last = first;
  for (const CommSpan& span : record.spans) {
    first = std::min(first, span.begin);
    last = std::max(last, span.end);
  }
  return kResolution + std::llround((last - first) * 1e9 / kFloatSteps);
}

v1::TraceStream::Kind KindOf(CommUse use) {
  switch (use) {
    case CommUse::kLayer:
    case CommUse::kPartial:
      return v1::TraceStream::TENSOR;
    case CommUse::kActivation:
    case CommUse::kGradient:
    case CommUse::kTable:
      return v1::TraceStream::LINK;
    case CommUse::kReduce:
    case CommUse::kGather:
      return v1::TraceStream::REPLICAS;
    case CommUse::kWorld:
      return v1::TraceStream::WORLD;
  }
  return v1::TraceStream::KIND_UNSPECIFIED;
}

bool IsLink(CommUse use) { return use == CommUse::kActivation || use == CommUse::kGradient; }

// Times by `to_host`, counted from `base`.
report::TraceSpan SpanOf(const CommSpan& span, std::string label, const ClockMap& to_host,
                         int64_t base) {
  const auto nanos = [&](double seconds) { return to_host(std::llround(seconds * 1e9)) - base; };
  return {.label = std::move(label),
          .begin = nanos(span.begin),
          .end = nanos(span.end),
          .step = span.step};
}

}  // namespace

CommNames NamesOf(const layout::Mesh& mesh, int rank, int chunks) {
  CommNames names;
  for (size_t i = 0; i < parallel::kNumCommUses; ++i)
    names.sends[i] = names.receives[i] = std::string(parallel::kCommUses[i].group);
  for (const parallel::Edge& edge : parallel::EdgesOf(mesh, rank, chunks)) {
    const auto use = static_cast<size_t>(
        edge.kind == parallel::EdgeKind::kActivation ? CommUse::kActivation : CommUse::kGradient);
    const auto stage = [&](int index) {
      return mesh.RankInGroup(edge.spec.members[static_cast<size_t>(index)], layout::kStageAxes);
    };
    std::string name = fmt::format("{} {}>{}", parallel::kCommUses[use].group,
                                   stage(parallel::kSenderIndex), stage(parallel::kReceiverIndex));
    if (edge.outgoing) {
      names.receiver[use] = edge.spec.members[static_cast<size_t>(parallel::kReceiverIndex)];
      names.sends[use] = std::move(name);
    } else {
      names.receives[use] = std::move(name);
    }
  }
  return names;
}

CommUse UseOf(std::string_view name) {
  const std::string_view group = name.substr(0, name.find(' '));
  for (size_t i = 0; i < parallel::kNumCommUses; ++i) {
    if (parallel::kCommUses[i].group == group) return static_cast<CommUse>(i);
  }
  CHECK(false) << "no group is called " << name;
  return CommUse::kLayer;
}

void AddStreams(const parallel::CommRecord& record, const CommNames& names, const ClockMap& to_host,
                v1::RankTrace* out) {
  std::array<std::vector<report::TraceSpan>, parallel::kNumCommUses> calls;
  std::vector<report::TraceSpan> exposed;
  const int64_t base = out->base_ns();
  const int64_t slack_ns = SlackNanos(record);
  for (const CommSpan& span : record.spans) {
    const auto use = static_cast<size_t>(span.use);
    const std::string& name = span.kind == SpanKind::kWait ? names.receives[use] : names.sends[use];
    if (span.kind != SpanKind::kBeside) exposed.push_back(SpanOf(span, name, to_host, base));
    if (span.kind == SpanKind::kBeside || span.kind == SpanKind::kInline)
      calls[use].push_back(SpanOf(span, name, to_host, base));
  }
  const auto add = [&](std::string name, v1::TraceStream::Kind kind,
                       std::vector<report::TraceSpan> spans) {
    v1::TraceStream* const stream = out->add_streams();
    stream->set_name(std::move(name));
    stream->set_kind(kind);
    report::WriteSpans(std::move(spans), out->first_step(), /*placed=*/false, slack_ns, stream);
    return stream;
  };
  if (!exposed.empty()) add("exposed", v1::TraceStream::EXPOSED, std::move(exposed));
  for (size_t i = 0; i < parallel::kNumCommUses; ++i) {
    if (record.calls[i] == 0) continue;
    const auto use = static_cast<CommUse>(i);
    v1::TraceStream* const stream = add(names.sends[i], KindOf(use), std::move(calls[i]));
    stream->set_calls(record.calls[i]);
    if (IsLink(use)) stream->set_receiver(names.receiver[i]);
  }
  out->set_dropped(out->dropped() + record.dropped);
}

}  // namespace mt::trace
