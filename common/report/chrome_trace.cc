// Events are written one a line, as text: a tree of them would take many times the memory of the
// file.
#include "common/report/chrome_trace.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "common/base/plain_text.h"
#include "common/report/trace_stream.h"
#include "megatrain/v1/trace.pb.h"

namespace mt::report {
namespace {

namespace v1 = megatrain::v1;

// Whole microseconds and three digits: a double would lose digits after some minutes.
std::string Microseconds(int64_t nanos) {
  return fmt::format("{}.{:03}", nanos / 1000, nanos % 1000);
}

// By this number readers order the threads.
int PlaceOf(const v1::TraceStream& stream) {
  switch (stream.kind()) {
    case v1::TraceStream::COMPUTE:
      return 1;
    case v1::TraceStream::EXPOSED:
      return 2;
    case v1::TraceStream::STARVED:
      return 3;
    case v1::TraceStream::TENSOR:
      return 4;
    case v1::TraceStream::LINK:
      return 5;
    case v1::TraceStream::REPLICAS:
      return 6;
    case v1::TraceStream::WORLD:
      return 7;
    default:
      return 8;
  }
}

class Writer {
 public:
  explicit Writer(int64_t base) : base_(base) {}

  void Name(std::string_view what, int pid, int tid, std::string_view name) {
    Event(fmt::format(R"("ph":"M","name":"{}_name","pid":{},"tid":{},"args":{{"name":{}}})", what,
                      pid, tid, base::JsonQuoted(name)));
  }
  void Order(std::string_view what, int pid, int tid, int place) {
    Event(fmt::format(R"("ph":"M","name":"{}_sort_index","pid":{},"tid":{},)"
                      R"("args":{{"sort_index":{}}})",
                      what, pid, tid, place));
  }
  void Span(const TraceSpan& span, std::string_view category, int pid, int tid, bool placed) {
    std::string args = fmt::format(R"("step":{})", span.step);
    if (placed) args += fmt::format(R"(,"microbatch":{},"chunk":{})", span.microbatch, span.chunk);
    Event(fmt::format(R"("ph":"X","name":{},"cat":{},"pid":{},"tid":{},"ts":{},"dur":{},)"
                      R"("args":{{{}}})",
                      base::JsonQuoted(span.label), base::JsonQuoted(category), pid, tid,
                      Microseconds(span.begin - base_), Microseconds(span.end - span.begin), args));
  }
  const std::string& events() const { return events_; }

 private:
  void Event(std::string_view fields) {
    events_ += events_.empty() ? "\n{" : ",\n{";
    events_ += fields;
    events_ += '}';
  }

  const int64_t base_;
  std::string events_;
};

int64_t FirstBegin(const v1::JobTrace& trace) {
  int64_t first = std::numeric_limits<int64_t>::max();
  for (const v1::RankTrace& rank : trace.ranks()) {
    for (const v1::TraceStream& stream : rank.streams()) {
      if (stream.gap_ns_size() > 0) first = std::min(first, rank.base_ns() + stream.gap_ns(0));
    }
  }
  return first;
}

void AddRank(const v1::RankTrace& rank, Writer* out) {
  const int pid = rank.rank();
  out->Name("process", pid, 0,
            fmt::format("rank {} ({}) on {}", rank.rank(), rank.place(), rank.host()));
  out->Order("process", pid, 0, pid);
  std::vector<const v1::TraceStream*> streams;
  for (const v1::TraceStream& stream : rank.streams()) streams.push_back(&stream);
  std::ranges::stable_sort(streams, {}, [](const auto* stream) { return PlaceOf(*stream); });
  int tid = 0;
  for (const v1::TraceStream* stream : streams) {
    ++tid;
    out->Name("thread", pid, tid, stream->name());
    out->Order("thread", pid, tid, tid);
    const bool placed = stream->microbatch_size() > 0;
    for (const TraceSpan& span : SpansOf(rank, *stream))
      out->Span(span, stream->name(), pid, tid, placed);
  }
}

// What is not a span: which steps, of which device, and what is lacking.
std::string OtherData(const v1::JobTrace& trace) {
  int64_t dropped = 0;
  for (const v1::RankTrace& rank : trace.ranks()) dropped += rank.dropped();
  std::string out =
      fmt::format(R"("ranks":{},"spans_without_room":{})", trace.ranks_size(), dropped);
  if (trace.ranks_size() > 0) {
    out +=
        fmt::format(R"(,"first_step":{},"last_step":{},"device":{})", trace.ranks(0).first_step(),
                    trace.ranks(0).last_step(), base::JsonQuoted(trace.ranks(0).device()));
  }
  if (!trace.note().empty()) out += fmt::format(R"(,"note":{})", base::JsonQuoted(trace.note()));
  return out;
}

}  // namespace

std::string ChromeTrace(const v1::JobTrace& trace) {
  Writer writer(FirstBegin(trace));
  for (const v1::RankTrace& rank : trace.ranks()) AddRank(rank, &writer);
  return fmt::format("{{\"displayTimeUnit\":\"ms\",\"otherData\":{{{}}},\"traceEvents\":[{}\n]}}\n",
                     OtherData(trace), writer.events());
}

}  // namespace mt::report
