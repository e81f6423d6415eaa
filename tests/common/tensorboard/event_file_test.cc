// Event files: bytes written out by hand, and a file of PyTorch's SummaryWriter (write_events.py).
#include "common/tensorboard/event_file.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/files.h"
#include "tests/common/tensorboard/event_records.h"
#include "tests/paths.h"

namespace mt::tensorboard {
namespace {

using megatrain::v1::EventFileRecord;
using testing::ElementsAre;
using testing::Optional;

std::string Torchs() {
  auto bytes = base::ReadFile(MT_SOURCE_DIR "/tests/common/tensorboard/events.out.tfevents.torch");
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  return bytes.ok() ? *bytes : "";
}

TEST(EventFileTest, WhatPyTorchWritesIsRead) {
  const std::vector<EventFileRecord> records = EventRecordsOf(Torchs());
  ASSERT_EQ(records.size(), 8U);
  EXPECT_EQ(records[0].file_version(), "brain.Event:2");
  EXPECT_EQ(records[1].file_version(), "brain.Event:2") << "theirs tells it again";
  EXPECT_EQ(records[2].session_log().status(), EventFileRecord::SessionLog::START);
  EXPECT_EQ(records[2].step(), 3);
  ASSERT_EQ(records[3].summary().value_size(), 1);
  EXPECT_EQ(records[3].summary().value(0).tag(), "lm loss");
  EXPECT_EQ(records[3].summary().value(0).simple_value(), 2.5F);
  EXPECT_EQ(records[3].wall_time(), 1764480003.25);
  EXPECT_TRUE(records[4].summary().value(0).has_simple_value()) << "0 is there";
  EXPECT_EQ(records[5].summary().value(0).simple_value(), -1.25F);
  EXPECT_EQ(records[6].step(), int64_t{1} << 40);
  EXPECT_EQ(records[6].summary().value(0).simple_value(), 1e-30F);
  EXPECT_TRUE(std::isnan(records[7].summary().value(0).simple_value()));
}

// Their writer sets the same fields in the same order, so equal content is equal bytes.
TEST(EventFileTest, TheSameScalarsAreTheSameBytesAsPyTorchs) {
  const std::string torch = Torchs();
  const std::vector<EventFileRecord> theirs = EventRecordsOf(torch);
  std::string ours;
  for (const EventFileRecord& record : theirs) {
    if (!record.has_summary()) continue;
    const EventTime at{.step = record.step(), .time_us = std::llround(record.wall_time() * 1e6)};

    const auto& value = record.summary().value(0);
    ours += ScalarRecord(at, {{.tag = value.tag(), .value = value.simple_value()}});
  }
  ASSERT_GT(ours.size(), 200U);
  EXPECT_EQ(torch.substr(torch.size() - ours.size()), ours);
}

TEST(EventFileTest, AHeadNamesTheFirstStepToCome) {
  const std::string head = FileHead({.step = 21, .time_us = 1'500'000});
  EXPECT_THAT(EventLinesOf(head), ElementsAre("brain.Event:2", "start 21"));
  EXPECT_EQ(EventRecordsOf(head)[1].wall_time(), 1.5);
  EXPECT_EQ(head.substr(head.size() - SessionStart({.step = 21, .time_us = 1'500'000}).size()),
            SessionStart({.step = 21, .time_us = 1'500'000}));
}

TEST(EventFileTest, ScalarsOfAStepAreOneRecordOfFloats) {
  const std::string bytes =
      ScalarRecord({.step = 7, .time_us = 2'000'000}, {{"lm loss", 0.1}, {"skipped", 0}});
  const std::vector<EventFileRecord> records = EventRecordsOf(bytes);
  ASSERT_EQ(records.size(), 1U);
  ASSERT_EQ(records[0].summary().value_size(), 2);
  EXPECT_EQ(records[0].summary().value(0).simple_value(), 0.1F);
  EXPECT_TRUE(records[0].summary().value(1).has_simple_value()) << "0 must be told";
  EXPECT_EQ(ScalarRecord({.step = 7, .time_us = 0}, {}), "");
}

TEST(EventFileTest, NamesSortByTheirStart) {
  EXPECT_EQ(EventFileName(1764480000, "abc-e0001"), "events.out.tfevents.1764480000.abc-e0001");
  EXPECT_LT(EventFileName(999'999'999, "z"), EventFileName(1'000'000'000, "a"));
  EXPECT_THAT(StartOfEventFile(EventFileName(17, "abc")), Optional(17));
  EXPECT_THAT(StartOfEventFile("events.out.tfevents.12"), Optional(12));
  for (const char* other : {"events.out.tfevents.", "events.out.tfevents.x", "rank-00000.log",
                            "events.out.tfevents.-1.a", "events.out.tfevents.1x"})
    EXPECT_EQ(StartOfEventFile(other), std::nullopt) << other;
}

}  // namespace
}  // namespace mt::tensorboard
