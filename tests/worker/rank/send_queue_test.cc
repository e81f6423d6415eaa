// The queue of messages to the agent: numbers, acknowledgements, new streams, its bound.
#include "worker/rank/send_queue.h"

#include <vector>

#include <gtest/gtest.h>

#include "megatrain/v1/rank.pb.h"
#include "worker/node/ranks/unsent_messages.h"

namespace mt::rank {
namespace {

using megatrain::v1::RankMessage;

RankMessage Step(int64_t step) {
  RankMessage message;
  message.mutable_step()->set_step(step);
  return message;
}
RankMessage Done() {
  RankMessage message;
  message.mutable_command_done()->set_word_step(1);
  return message;
}
RankMessage Ask() {
  RankMessage message;
  message.mutable_rendezvous_get();
  return message;
}

// Writes everything that waits; the numbers, 0 for what has none.
std::vector<int64_t> WriteAll(SendQueue* queue) {
  std::vector<int64_t> seqs;
  RankMessage next;
  while (queue->Next(&next)) {
    seqs.push_back(next.seq());
    queue->Written();
  }
  return seqs;
}
std::vector<int64_t> StepsIn(const SendQueue& queue) {
  std::vector<int64_t> steps;
  EXPECT_TRUE(node::ReadUnsent(queue.Serialize(), [&steps](const RankMessage& message) {
    if (message.has_step()) steps.push_back(message.step().step());
  }));
  return steps;
}

TEST(SendQueueTest, KeepsWhatIsNumberedUntilItIsAcknowledged) {
  SendQueue queue;
  queue.Push(Step(1));
  queue.Push(Ask());
  queue.Push(Done());
  EXPECT_EQ(WriteAll(&queue), (std::vector<int64_t>{1, 0, 2}));
  EXPECT_TRUE(queue.nothing_to_write());
  EXPECT_EQ(queue.size(), 2U) << "a question is gone once it is written";
  queue.Acked(1);
  EXPECT_EQ(queue.size(), 1U);
  queue.Push(Step(2));
  EXPECT_EQ(WriteAll(&queue), (std::vector<int64_t>{3})) << "nothing twice on one stream";
  queue.Acked(3);
  EXPECT_TRUE(queue.empty());
}

TEST(SendQueueTest, ANewStreamBeginsWithTheOldest) {
  SendQueue queue;
  for (int64_t step = 1; step <= 3; ++step) queue.Push(Step(step));
  WriteAll(&queue);
  queue.Push(Ask());
  queue.Push(Step(4));
  queue.Acked(1);
  queue.Rewind();
  EXPECT_EQ(WriteAll(&queue), (std::vector<int64_t>{2, 3, 0, 4}));
  // An acknowledgement of what goes out a second time, before it has.
  queue.Rewind();
  queue.Acked(3);
  EXPECT_EQ(WriteAll(&queue), (std::vector<int64_t>{4}));
}

TEST(SendQueueTest, AnAcknowledgementWhileTheMessageIsBeingWritten) {
  SendQueue queue;
  queue.Push(Step(1));
  queue.Push(Step(2));
  WriteAll(&queue);
  queue.Rewind();
  RankMessage in_flight;
  ASSERT_TRUE(queue.Next(&in_flight));
  EXPECT_EQ(in_flight.seq(), 1);
  queue.Acked(2);
  queue.Push(Step(3));
  queue.Written();
  EXPECT_EQ(WriteAll(&queue), (std::vector<int64_t>{3}));
}

TEST(SendQueueTest, AnAcknowledgementOvertakesTheReturnOfTheWrite) {
  SendQueue queue;
  queue.Push(Step(1));
  RankMessage in_flight;
  ASSERT_TRUE(queue.Next(&in_flight));
  queue.Acked(1);
  EXPECT_TRUE(queue.empty());
  queue.Written();
  EXPECT_TRUE(queue.empty());
}

TEST(SendQueueTest, WhatWasNeverWrittenCannotHaveArrived) {
  SendQueue queue;
  queue.Push(Step(1));
  WriteAll(&queue);
  queue.Push(Step(2));
  queue.Acked(1'000'000);
  EXPECT_EQ(WriteAll(&queue), (std::vector<int64_t>{2}));
}

TEST(SendQueueTest, BeyondTheBoundOlderStepsAreThinnedOut) {
  SendQueue queue(8);
  for (int64_t step = 1; step <= 8; ++step) EXPECT_EQ(queue.Push(Step(step)), 0);
  EXPECT_EQ(queue.Push(Step(9)), 2);
  EXPECT_EQ(StepsIn(queue), (std::vector<int64_t>{1, 3, 5, 6, 7, 8, 9}));
  EXPECT_EQ(queue.Push(Step(10)), 0);
  EXPECT_EQ(queue.Push(Step(11)), 2);
  EXPECT_EQ(StepsIn(queue), (std::vector<int64_t>{1, 5, 7, 8, 9, 10, 11}));
  for (int64_t step = 12; step <= 1000; ++step) {
    queue.Push(Step(step));
    ASSERT_LE(queue.size(), 8U);
  }
  EXPECT_EQ(StepsIn(queue).back(), 1000);
}

TEST(SendQueueTest, ReportsAreNeverDropped) {
  SendQueue queue(8);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(queue.Push(Done()), 0);
  EXPECT_EQ(queue.Push(Step(1)), 0) << "the only step there is";
  EXPECT_EQ(queue.Push(Step(2)), 0);
  EXPECT_EQ(queue.Push(Step(3)), 1);
  EXPECT_EQ(StepsIn(queue), (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(queue.size(), 22U);
}

TEST(SendQueueTest, ThinningKeepsThePlaceOnTheStream) {
  SendQueue queue(8);
  for (int64_t step = 1; step <= 8; ++step) queue.Push(Step(step));
  for (int i = 0; i < 5; ++i) {
    RankMessage written;
    ASSERT_TRUE(queue.Next(&written));
    queue.Written();
  }
  RankMessage in_flight;
  ASSERT_TRUE(queue.Next(&in_flight));
  EXPECT_EQ(in_flight.step().step(), 6);
  EXPECT_EQ(queue.Push(Step(9)), 2);
  queue.Written();
  EXPECT_EQ(WriteAll(&queue), (std::vector<int64_t>{7, 8, 9}));
}

}  // namespace
}  // namespace mt::rank
