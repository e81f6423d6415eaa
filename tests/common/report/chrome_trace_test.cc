// A Chrome trace of records made by hand: every rank and stream, times to the nanosecond, and what
// the columns of a stream lose and keep.
#include "common/report/chrome_trace.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/report/trace_stream.h"
#include "megatrain/v1/trace.pb.h"

namespace mt::report {
namespace {

using nlohmann::json;
namespace v1 = megatrain::v1;

v1::RankTrace Rank(int number) {
  v1::RankTrace rank;
  rank.set_rank(number);
  rank.set_place("tp 0, pp " + std::to_string(number));
  rank.set_host("a \"b\"\\\n");
  rank.set_first_step(7);
  rank.set_last_step(8);
  // More digits than a double of microseconds has.
  rank.set_base_ns(9'007'199'254'740'993 + number);
  return rank;
}

v1::TraceStream* Stream(v1::TraceStream::Kind kind, const std::string& name,
                        std::vector<TraceSpan> spans, v1::RankTrace* rank, bool placed = false) {
  v1::TraceStream* stream = rank->add_streams();
  stream->set_kind(kind);
  stream->set_name(name);
  WriteSpans(std::move(spans), rank->first_step(), placed, /*slack_ns=*/2, stream);
  return stream;
}

TEST(TraceStream, SpansComeBackInOrder) {
  v1::RankTrace rank = Rank(0);
  const v1::TraceStream& stream = *Stream(
      v1::TraceStream::COMPUTE, "compute",
      {{.label = "backward", .begin = 30, .end = 35, .step = 8, .microbatch = 2, .chunk = 1},
       {.label = "forward", .begin = -5, .end = 10, .step = 7},
       {.label = "forward", .begin = 10, .end = 12, .step = 6}},
      &rank, /*placed=*/true);
  EXPECT_EQ(stream.labels_size(), 2);
  const std::vector<TraceSpan> spans = SpansOf(rank, stream);
  ASSERT_EQ(spans.size(), 3U);
  EXPECT_EQ(spans[0].label, "forward");
  EXPECT_EQ(spans[0].begin, rank.base_ns() - 5);
  EXPECT_EQ(spans[0].end, rank.base_ns() + 10);
  EXPECT_EQ(spans[1].begin, rank.base_ns() + 10);
  EXPECT_EQ(spans[1].step, 7) << "none before the first";
  EXPECT_EQ(spans[2].label, "backward");
  EXPECT_EQ(spans[2].end, rank.base_ns() + 35);
  EXPECT_EQ(spans[2].step, 8);
  EXPECT_EQ(spans[2].microbatch, 2);
  EXPECT_EQ(spans[2].chunk, 1);
}

TEST(TraceStream, TheResolutionOfAClockIsNoOverlap) {
  v1::RankTrace rank = Rank(0);
  const v1::TraceStream& stream = *Stream(v1::TraceStream::TENSOR, "tp",
                                          {{.label = "a", .begin = 0, .end = 10},
                                           {.label = "b", .begin = 8, .end = 20},
                                           {.label = "c", .begin = 17, .end = 30}},
                                          &rank);
  const std::vector<TraceSpan> spans = SpansOf(rank, stream);
  EXPECT_EQ(spans[1].begin - rank.base_ns(), 10);
  EXPECT_EQ(spans[1].end - rank.base_ns(), 20);
  EXPECT_EQ(spans[2].begin - rank.base_ns(), 17) << "what does overlap is shown";
}

TEST(TraceStream, AStreamThatWasCutShortEnds) {
  v1::RankTrace rank = Rank(0);
  v1::TraceStream stream =
      *Stream(v1::TraceStream::TENSOR, "tp",
              {{.label = "a", .end = 1}, {.label = "b", .begin = 2, .end = 3}}, &rank);
  stream.mutable_length_ns()->RemoveLast();
  EXPECT_EQ(SpansOf(rank, stream).size(), 1U);
  stream.set_label(0, 9);
  EXPECT_TRUE(SpansOf(rank, stream).empty());
}

// The events of a kind, each with its fields.
std::vector<json> Events(const json& trace, const std::string& kind) {
  std::vector<json> found;
  for (const json& event : trace.at("traceEvents"))
    if (event.at("ph") == kind) found.push_back(event);
  return found;
}

TEST(ChromeTrace, IsAProcessPerRankAndAThreadPerStream) {
  v1::JobTrace trace;
  for (int number = 0; number < 2; ++number) {
    v1::RankTrace rank = Rank(number);
    Stream(v1::TraceStream::HOST, "host", {{.label = "enqueue", .begin = 0, .end = 5, .step = 7}},
           &rank);
    Stream(v1::TraceStream::COMPUTE, "compute",
           {{.label = "forward", .begin = 1'234, .end = 3'000'234, .step = 8, .microbatch = 3}},
           &rank, /*placed=*/true);
    rank.set_dropped(number);
    *trace.add_ranks() = std::move(rank);
  }
  trace.set_note("the run ended");
  const json read = json::parse(ChromeTrace(trace));
  EXPECT_EQ(read.at("displayTimeUnit"), "ms");
  EXPECT_EQ(read.at("otherData").at("ranks"), 2);
  EXPECT_EQ(read.at("otherData").at("first_step"), 7);
  EXPECT_EQ(read.at("otherData").at("spans_without_room"), 1);
  EXPECT_EQ(read.at("otherData").at("note"), "the run ended");
  std::map<std::pair<int, int>, std::string> threads;
  int processes = 0;
  for (const json& event : Events(read, "M")) {
    if (event.at("name") == "process_name") {
      ++processes;
      EXPECT_NE(event.at("args").at("name").get<std::string>().find("a \"b\"\\\n"),
                std::string::npos);
    }
    if (event.at("name") == "thread_name")
      threads[{event.at("pid"), event.at("tid")}] = event.at("args").at("name");
  }
  EXPECT_EQ(processes, 2);
  EXPECT_EQ(threads.size(), 4U);
  EXPECT_EQ((threads[{1, 1}]), "compute") << "in front of the host";
  EXPECT_EQ((threads[{1, 2}]), "host");
  const std::vector<json> spans = Events(read, "X");
  ASSERT_EQ(spans.size(), 4U);
  EXPECT_EQ(spans[0].at("name"), "forward");
  EXPECT_EQ(spans[0].at("args").at("step"), 8);
  EXPECT_EQ(spans[0].at("args").at("microbatch"), 3);
  EXPECT_DOUBLE_EQ(spans[0].at("ts"), 1.234);
  EXPECT_DOUBLE_EQ(spans[0].at("dur"), 2999.0);
  EXPECT_EQ(spans[1].at("name"), "enqueue");
  EXPECT_FALSE(spans[1].at("args").contains("microbatch"));
  EXPECT_DOUBLE_EQ(spans[2].at("ts"), 1.235) << "rank 1 is a nanosecond later";
}

TEST(ChromeTrace, OfNothingIsATraceToo) {
  const json read = json::parse(ChromeTrace(v1::JobTrace()));
  EXPECT_TRUE(read.at("traceEvents").empty());
  EXPECT_EQ(read.at("otherData").at("ranks"), 0);
}

}  // namespace
}  // namespace mt::report
