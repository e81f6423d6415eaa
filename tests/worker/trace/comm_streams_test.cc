// The streams of a rank's communication: what they are called, and what of the compute stream is
// exposed to them.
#include "worker/trace/comm_streams.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/layout/mesh.h"
#include "common/report/trace_stream.h"
#include "megatrain/v1/trace.pb.h"

namespace mt::trace {
namespace {

namespace v1 = megatrain::v1;
using parallel::CommRecord;
using parallel::CommUse;
using parallel::SpanKind;

std::string NameIn(const std::array<std::string, parallel::kNumCommUses>& names, CommUse use) {
  return names[static_cast<size_t>(use)];
}

TEST(CommNames, LinksJoinStages) {
  const layout::Mesh mesh = layout::Mesh::Create({.tp = 2, .dp = 2, .pp = 3}).value();
  const int middle = mesh.WorldRankOf({.tp = 1, .dp = 1, .pp = 1});
  const CommNames names = NamesOf(mesh, middle, /*chunks=*/1);
  EXPECT_EQ(NameIn(names.sends, CommUse::kActivation), "pp-act 1>2");
  EXPECT_EQ(NameIn(names.receives, CommUse::kActivation), "pp-act 0>1");
  EXPECT_EQ(NameIn(names.sends, CommUse::kGradient), "pp-grad 1>0");
  EXPECT_EQ(NameIn(names.receives, CommUse::kGradient), "pp-grad 2>1");
  EXPECT_EQ(names.receiver[static_cast<size_t>(CommUse::kActivation)],
            mesh.WorldRankOf({.tp = 1, .dp = 1, .pp = 2}));
  EXPECT_EQ(names.receiver[static_cast<size_t>(CommUse::kGradient)],
            mesh.WorldRankOf({.tp = 1, .dp = 1, .pp = 0}));
  EXPECT_EQ(NameIn(names.sends, CommUse::kReduce), "dp-reduce");
  EXPECT_EQ(NameIn(names.receives, CommUse::kGather), "dp-gather");
}

TEST(CommNames, WithVirtualStagesTheLastFeedsTheFirst) {
  const layout::Mesh mesh = layout::Mesh::Create({.pp = 3}).value();
  const CommNames names = NamesOf(mesh, 2, /*chunks=*/2);
  EXPECT_EQ(NameIn(names.sends, CommUse::kActivation), "pp-act 2>0");
  EXPECT_EQ(names.receiver[static_cast<size_t>(CommUse::kActivation)], 0);
  EXPECT_EQ(NameIn(names.receives, CommUse::kGradient), "pp-grad 0>2");
}

TEST(CommNames, EveryNameHasItsUse) {
  const layout::Mesh mesh = layout::Mesh::Create({.pp = 2}).value();
  for (int rank = 0; rank < 2; ++rank) {
    const CommNames names = NamesOf(mesh, rank, /*chunks=*/2);
    for (size_t i = 0; i < parallel::kNumCommUses; ++i) {
      EXPECT_EQ(UseOf(names.sends[i]), static_cast<CommUse>(i));
      EXPECT_EQ(UseOf(names.receives[i]), static_cast<CommUse>(i));
    }
  }
}

TEST(ClockMap, GoesThroughItsBeginAtTheRateOfItsEnd) {
  const ClockMap drifts({.from = 1'000, .to = 51'000},
                        {.from = 1'000'001'000, .to = 1'000'061'000});
  EXPECT_EQ(drifts(1'000), 51'000);
  EXPECT_EQ(drifts(500'001'000), 500'056'000);
  EXPECT_EQ(drifts(0), 50'000);
  const ClockMap close({.from = 1'000, .to = 51'000}, {.from = 2'000, .to = 53'000});
  EXPECT_EQ(close(1'000'001'000), 1'000'051'000) << "two points beside each other tell no rate";
  const ClockMap odd({.from = 0, .to = 0}, {.from = 1'000'000'000, .to = 1'100'000'000});
  EXPECT_EQ(odd(1'000'000'000), 1'000'000'000) << "no clock goes wrong by a tenth";
  EXPECT_EQ(ClockMap()(7), 7);
}

TEST(CommStreams, CallsAreApartFromWhatIsExposed) {
  const layout::Mesh mesh = layout::Mesh::Create({.pp = 2}).value();
  CommRecord record{.steps = 2,
                    .spans = {{CommUse::kReduce, SpanKind::kBeside, 1, 2, 5},
                              {CommUse::kReduce, SpanKind::kWait, 1.5, 2, 5},
                              {CommUse::kWorld, SpanKind::kInline, 3, 4, 6},
                              {CommUse::kActivation, SpanKind::kBeside, 1, 3, 5},
                              {CommUse::kActivation, SpanKind::kWaitSent, 2, 3, 5},
                              {CommUse::kGradient, SpanKind::kWait, 4, 6, 6}},
                    .dropped = 7};
  record.calls[static_cast<size_t>(CommUse::kReduce)] = 3;
  record.calls[static_cast<size_t>(CommUse::kWorld)] = 1;
  record.calls[static_cast<size_t>(CommUse::kActivation)] = 1;
  v1::RankTrace trace;
  trace.set_first_step(5);
  trace.set_last_step(6);
  trace.set_base_ns(1'000'000'000);
  AddStreams(record, NamesOf(mesh, 0, /*chunks=*/1), ClockMap({.from = 0, .to = 500}, {}), &trace);
  EXPECT_EQ(trace.dropped(), 7);
  std::vector<std::string> names;
  for (const v1::TraceStream& stream : trace.streams()) names.push_back(stream.name());
  EXPECT_EQ(names, (std::vector<std::string>{"exposed", "pp-act 0>1", "dp-reduce", "control"}))
      << "none for what only arrives";
  std::vector<std::string> exposed;
  for (const report::TraceSpan& span : report::SpansOf(trace, trace.streams(0)))
    exposed.push_back(span.label);
  EXPECT_EQ(exposed,
            (std::vector<std::string>{"dp-reduce", "pp-act 0>1", "control", "pp-grad 1>0"}));
  const v1::TraceStream& link = trace.streams(1);
  EXPECT_EQ(link.kind(), v1::TraceStream::LINK);
  EXPECT_EQ(link.receiver(), 1);
  EXPECT_EQ(link.calls(), 1);
  const v1::TraceStream& reduce = trace.streams(2);
  EXPECT_EQ(reduce.calls(), 3) << "those that were not timed, too";
  const std::vector<report::TraceSpan> spans = report::SpansOf(trace, reduce);
  ASSERT_EQ(spans.size(), 1U);
  EXPECT_EQ(spans[0].begin, 1'000'000'500);
  EXPECT_EQ(spans[0].end, 2'000'000'500);
  EXPECT_EQ(spans[0].step, 5);
}

}  // namespace
}  // namespace mt::trace
