// Three clocks meet: the host's, that of the marks, which is compared with it while the device is
// idle, before and after, and that of the spans, which has a point beside the mark at each step's
// end.
#include "worker/trace/step_tracer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "common/base/check.h"
#include "common/base/ids.h"
#include "megatrain/v1/trace.pb.h"
#include "worker/trace/comm_streams.h"

namespace mt::trace {
namespace {

namespace v1 = megatrain::v1;

// Spans for a benchmark, of whose calls few are timed, and the least for any trace.
constexpr int64_t kLeastSpans = 16'384;
// A trace that begins before any step has shown how many calls one has.
constexpr int64_t kUnknownSpans = 65'536;
constexpr int64_t kMostSpans = 262'144;
// Of all ranks together: some 200 MB on rank 0, and a file that can still be looked at.
constexpr int64_t kMostSpansOfJob = 16 * kMostSpans;

std::string HostName() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "";
  return name.data();
}

std::string PlaceOf(const layout::Coordinates& at) {
  return fmt::format("tp {}, pp {}, dp {}", at.tp, at.pp, at.dp);
}

std::string LabelOf(const engine::PhaseInterval& interval) {
  const std::string name(engine::Name(interval.phase));
  return interval.between ? name + std::string(kBetweenSteps) : name;
}

std::vector<report::TraceSpan> ComputeSpans(const std::vector<engine::PhaseInterval>& phases,
                                            const ClockMap& to_host) {
  std::vector<report::TraceSpan> spans;
  spans.reserve(phases.size());
  for (const engine::PhaseInterval& interval : phases) {
    spans.push_back({.label = LabelOf(interval),
                     .begin = to_host(interval.begin),
                     .end = to_host(interval.end),
                     .step = interval.step,
                     .microbatch = interval.microbatch,
                     .chunk = interval.chunk});
  }
  return spans;
}

// Nothing is lacking once the end of an interval is enqueued; until then something may be.
std::vector<report::TraceSpan> StarvedSpans(const std::vector<engine::PhaseInterval>& phases,
                                            const ClockMap& to_host) {
  std::vector<report::TraceSpan> spans;
  for (const engine::PhaseInterval& interval : phases) {
    const int64_t begin = to_host(interval.begin);
    const int64_t until = std::min(interval.enqueued, to_host(interval.end));
    if (interval.between || until <= begin) continue;
    spans.push_back({.label = LabelOf(interval),
                     .begin = begin,
                     .end = until,
                     .step = interval.step,
                     .microbatch = interval.microbatch,
                     .chunk = interval.chunk});
  }
  return spans;
}

}  // namespace

int64_t SpanCapacity(const TraceSteps& steps, int64_t calls_of_a_step, int64_t ranks) {
  if (!steps.every_call) return kLeastSpans;
  const int64_t most = std::clamp(kMostSpansOfJob / ranks, kLeastSpans, kMostSpans);
  if (calls_of_a_step == 0) return std::min(kUnknownSpans, most);
  // A step more for its waits, and half as much again for a larger batch.
  return std::clamp((steps.last - steps.first + 2) * calls_of_a_step * 3 / 2, kLeastSpans, most);
}

int64_t StepTracer::NowNanos() const {
  return std::chrono::nanoseconds(args_.clock->Now().time_since_epoch()).count();
}

ClockPoint StepTracer::MeasureNow() const {
  ClockPoint point;
  int64_t least = std::numeric_limits<int64_t>::max();
  for (int i = 0; i < 3; ++i) {
    const int64_t before = NowNanos();
    const int64_t mark = args_.phases->MarkNow();
    const int64_t after = NowNanos();
    if (after - before >= least) continue;
    least = after - before;
    point = {.from = mark, .to = before + (after - before) / 2};
  }
  return point;
}

void StepTracer::Start(const TraceSteps& steps) {
  CHECK(!active() && !steps.empty());
  const int64_t ranks = args_.axes->SizeOf(layout::kWorldAxes);
  const int64_t capacity = SpanCapacity(steps, args_.spans->calls_of_a_step(), ranks);
  // Room beside it for the ends of steps, without which no span could be placed. A rank alone has
  // no communication.
  auto clock = ranks == 1 ? nullptr
                          : args_.device->CreateSpanClock(capacity + steps.last - steps.first + 1,
                                                          args_.clock);
  if (clock != nullptr) {
    args_.spans->Start(std::move(clock), {.first = steps.first,
                                          .last = steps.last,
                                          .every_call = steps.every_call,
                                          .most_spans = capacity});
  }
  args_.phases->KeepIntervals(steps.first, steps.last);
  host_.clear();
  steps_ = steps;
  begin_ = MeasureNow();  // last: what it took to get here is no step's time
}

void StepTracer::AddHost(std::string_view what, int64_t step, base::MonotonicTime begin) {
  if (step < steps_.first || step > steps_.last) return;
  host_.push_back({.label = std::string(what),
                   .begin = std::chrono::nanoseconds(begin.time_since_epoch()).count(),
                   .end = NowNanos(),
                   .step = step});
}

std::optional<ClockMap> StepTracer::MapOfSpans(const parallel::CommRecord& record,
                                               const std::vector<engine::PhaseInterval>& phases,
                                               const ClockMap& marks_to_host) {
  std::map<int64_t, int64_t> marks;  // that end steps
  for (const engine::PhaseInterval& interval : phases)
    if (!interval.between) marks[interval.step] = interval.end;
  std::vector<ClockPoint> points;
  for (const parallel::StepEnd& end : record.ends) {
    const auto mark = marks.find(end.step);
    if (mark == marks.end()) continue;
    points.push_back({.from = std::llround(end.at * 1e9), .to = marks_to_host(mark->second)});
  }
  if (points.empty()) return std::nullopt;
  return ClockMap(points.front(), points.back());
}

void StepTracer::Finish(int64_t last_done, v1::RankTrace* out) {
  CHECK(active());
  const TraceSteps steps = std::exchange(steps_, {});
  const ClockMap to_host(begin_, MeasureNow());
  parallel::CommRecord record = args_.spans->Read();
  const std::vector<engine::PhaseInterval> phases = args_.phases->TakeIntervals();
  out->set_rank(args_.axes->world_rank());
  out->set_place(PlaceOf(args_.axes->at()));
  out->set_host(HostName());
  out->set_device(args_.device->Describe());
  out->set_boot_id(base::BootId());
  out->set_first_step(steps.first);
  out->set_last_step(std::min(steps.last, last_done));
  if (out->last_step() < steps.first) return;
  std::vector<report::TraceSpan> compute = ComputeSpans(phases, to_host);
  const int64_t base = !compute.empty() ? compute.front().begin : NowNanos();
  out->set_base_ns(base);
  const auto add = [&](const char* name, v1::TraceStream::Kind kind, bool placed,
                       std::vector<report::TraceSpan> spans) {
    for (report::TraceSpan& span : spans) {
      span.begin -= base;
      span.end -= base;
    }
    v1::TraceStream* const stream = out->add_streams();
    stream->set_name(name);
    stream->set_kind(kind);
    report::WriteSpans(std::move(spans), steps.first, placed, /*slack_ns=*/0, stream);
  };
  add("compute", v1::TraceStream::COMPUTE, /*placed=*/true, std::move(compute));
  if (args_.device->Enqueues()) {
    add("starved", v1::TraceStream::STARVED, /*placed=*/true, StarvedSpans(phases, to_host));
  }
  const std::optional<ClockMap> spans_to_host = MapOfSpans(record, phases, to_host);
  if (!spans_to_host) {  // nobody knows where they belong
    record.dropped += static_cast<int64_t>(record.spans.size());
    record.spans.clear();
  }
  AddStreams(record, NamesOf(args_.axes->mesh(), out->rank(), args_.chunks),
             spans_to_host.value_or(ClockMap()), out);
  add("host", v1::TraceStream::HOST, /*placed=*/false, std::exchange(host_, {}));
}

}  // namespace mt::trace
