// Times are written as gaps and lengths: small numbers, which a message stores in two or three
// bytes.
#include "common/report/trace_stream.h"

#include <algorithm>
#include <map>

#include "megatrain/v1/trace.pb.h"

namespace mt::report {

void WriteSpans(std::vector<TraceSpan> spans, int64_t first_step, bool placed, int64_t slack_ns,
                megatrain::v1::TraceStream* out) {
  std::ranges::stable_sort(spans, {}, &TraceSpan::begin);
  std::map<std::string, uint32_t, std::less<>> index;
  int64_t last = 0;
  bool first = true;
  for (const TraceSpan& span : spans) {
    const auto [at, added] = index.try_emplace(span.label, static_cast<uint32_t>(index.size()));
    if (added) out->add_labels(span.label);
    int64_t begin = span.begin;
    if (!first && begin < last && begin >= last - slack_ns) begin = last;
    const int64_t end = std::max(begin, span.end);
    out->add_label(at->second);
    out->add_gap_ns(begin - last);
    out->add_length_ns(static_cast<uint64_t>(end - begin));
    out->add_step(static_cast<uint32_t>(std::max<int64_t>(0, span.step - first_step)));
    if (placed) {
      out->add_microbatch(static_cast<uint32_t>(span.microbatch));
      out->add_chunk(static_cast<uint32_t>(span.chunk));
    }
    last = end;
    first = false;
  }
}

std::vector<TraceSpan> SpansOf(const megatrain::v1::RankTrace& trace,
                               const megatrain::v1::TraceStream& stream) {
  std::vector<TraceSpan> spans;
  const int count = std::min(
      {stream.label_size(), stream.gap_ns_size(), stream.length_ns_size(), stream.step_size()});
  spans.reserve(static_cast<size_t>(count));
  int64_t at = trace.base_ns();
  for (int i = 0; i < count; ++i) {
    if (stream.label(i) >= static_cast<uint32_t>(stream.labels_size())) break;
    TraceSpan span{.label = stream.labels(static_cast<int>(stream.label(i))),
                   .begin = at + stream.gap_ns(i),
                   .step = trace.first_step() + stream.step(i)};
    span.end = span.begin + static_cast<int64_t>(stream.length_ns(i));
    if (i < stream.microbatch_size()) span.microbatch = static_cast<int>(stream.microbatch(i));
    if (i < stream.chunk_size()) span.chunk = static_cast<int>(stream.chunk(i));
    at = span.end;
    spans.push_back(std::move(span));
  }
  return spans;
}

}  // namespace mt::report
