// What is special about groups over shared memory: how members agree to use it or not to, that no
// ring is lost, that messages' memory is used again. That they are groups as all others is tested
// by the suites over every Kind, and what happens to processes by kill_test.cc.
#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <latch>
#include <memory>
#include <string>
#include <sys/resource.h>
#include <sys/stat.h>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/ids.h"
#include "tests/worker/comm/group_harness.h"
#include "worker/comm/memory_store.h"
#include "worker/comm/self_group.h"
#include "worker/comm/shm/outbox.h"
#include "worker/comm/shm/segment.h"
#include "worker/comm/shm/shm_factory.h"
#include "worker/comm/shm/shm_group.h"

namespace mt::comm {
namespace {

using kernels::DType;

// Makes no group, but counts who asked for one.
class CountingFactory final : public GroupFactory {
 public:
  StatusOr<std::unique_ptr<ProcessGroup>> Create(GroupSpec spec) override {
    ++num_calls;
    return base::Error(absl::StatusCode::kUnimplemented, "group {} over TCP", spec.name);
  }
  std::atomic<int> num_calls = 0;
};

// Tells others something else than what a member said.
class ChangingStore final : public RendezvousStore {
 public:
  using Change = std::function<std::string(const std::string& key, const std::string& value)>;
  explicit ChangingStore(Change change) : change_(std::move(change)) {}
  Status Set(const std::string& key, std::string_view bytes) override {
    return store_.Set(key, change_ ? change_(key, std::string(bytes)) : std::string(bytes));
  }
  StatusOr<std::string> Get(const std::string& key, base::MonotonicTime deadline) override {
    return store_.Get(key, deadline);
  }

 private:
  MemoryStore store_;
  const Change change_;
};

// How many of three members make their group over TCP. `proc_of`: where a member looks for
// processes; `host_of`: its host, this machine's boot where empty.
int NumOverTcp(ChangingStore::Change change, const std::vector<std::string>& proc_of,
               const std::vector<std::string>& host_of = {}) {
  ChangingStore store(std::move(change));
  CountingFactory tcp;
  std::atomic<int> num_shared = 0;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      CommConfig config{.connect_timeout = std::chrono::seconds(20)};
      if (!host_of.empty()) config.host = host_of[static_cast<size_t>(rank)];
      const auto factory = MakeShmFactory(&store, config, &tcp, proc_of[static_cast<size_t>(rank)]);
      const auto group = factory->Create({.name = "g", .members = {4, 5, 6}, .my_index = rank});
      if (group.ok()) ++num_shared;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_shared + tcp.num_calls, 3);
  return tcp.num_calls;
}

std::vector<std::string> Everywhere(const std::string& proc) { return {proc, proc, proc}; }

// The words of an offer: yes, host, namespace, pid, descriptor, nonce.
ChangingStore::Change WithWord(size_t which, const std::string& word) {
  return [which, word](const std::string& key, const std::string& value) {
    if (key != "shm/g/0") return value;
    std::string text;
    size_t number = 0;
    for (size_t at = 0; at <= value.size(); ++number) {
      const size_t end = std::min(value.find(' ', at), value.size());
      text += (number == 0 ? "" : " ") + (number == which ? word : value.substr(at, end - at));
      at = end + 1;
    }
    return text;
  };
}

TEST(ShmFactory, SharesMemoryWhereAllCan) {
  EXPECT_EQ(NumOverTcp({}, Everywhere("/proc")), 0);
  EXPECT_EQ(NumOverTcp(WithWord(0, "yes"), Everywhere("/proc")), 0) << "the test's own change";
}

TEST(ShmFactory, AllGoOverTcpWhereOneCannot) {
  EXPECT_EQ(NumOverTcp({}, {"/nowhere", "/proc", "/proc"}), 3) << "the first";
  EXPECT_EQ(NumOverTcp({}, {"/proc", "/proc", "/nowhere"}), 3) << "the last";
}

TEST(ShmFactory, AllGoOverTcpWhereTheOfferIsOfAnotherPlace) {
  EXPECT_EQ(NumOverTcp(WithWord(1, "another-boot"), Everywhere("/proc")), 3);
  EXPECT_EQ(NumOverTcp(WithWord(2, "pid:[1]"), Everywhere("/proc")), 3);
  EXPECT_EQ(NumOverTcp(WithWord(3, "999999999"), Everywhere("/proc")), 3);
  EXPECT_EQ(NumOverTcp(WithWord(4, "0"), Everywhere("/proc")), 3) << "another file";
  EXPECT_EQ(NumOverTcp(WithWord(5, std::string(32, '0')), Everywhere("/proc")), 3);
  EXPECT_EQ(NumOverTcp(WithWord(5, "0 and more"), Everywhere("/proc")), 3);
}

// Two workers on one machine are two nodes, whose ranks share no memory though they could.
TEST(ShmFactory, NodesOfOneMachineAreDifferentHosts) {
  const std::string a = HostIdentity("node-a");
  const std::string b = HostIdentity("node-b");
  EXPECT_EQ(NumOverTcp({}, Everywhere("/proc"), {a, a, a}), 0);
  EXPECT_EQ(NumOverTcp({}, Everywhere("/proc"), {a, a, b}), 3);
  EXPECT_EQ(NumOverTcp({}, Everywhere("/proc"), {a, b, b}), 3);
  EXPECT_EQ(NumOverTcp({}, Everywhere("/proc"), {"", "", ""}), 3) << "nobody knows where it is";
}

TEST(HostIdentity, IsTheNodesWhereThereIsOne) {
  EXPECT_EQ(HostIdentity(), base::BootId());
  EXPECT_EQ(HostIdentity("node-a"), "node-a/" + base::BootId());
  EXPECT_EQ(CommConfig().host, HostIdentity()) << "of ranks without daemons";
}

// Limits of the process, which every member of this test has: any limit of addresses is refused.
TEST(ShmFactory, AllGoOverTcpWhereTheMemoryIsRefused) {
  for (const auto& [kind, bytes] :
       {std::pair{RLIMIT_FSIZE, rlim_t{64} << 20}, std::pair{RLIMIT_AS, rlim_t{1} << 46}}) {
    rlimit old{};
    ASSERT_EQ(::getrlimit(kind, &old), 0);
    const rlimit small{.rlim_cur = bytes, .rlim_max = old.rlim_max};
    ASSERT_EQ(::setrlimit(kind, &small), 0);
    const int num_over_tcp = NumOverTcp({}, Everywhere("/proc"));
    ASSERT_EQ(::setrlimit(kind, &old), 0);
    EXPECT_EQ(num_over_tcp, 3) << kind;
  }
}

TEST(ShmFactory, AGroupOfOneAsksNobody) {
  ChangingStore store([](const std::string&, const std::string&) -> std::string {
    ADD_FAILURE() << "nobody else is to know";
    return "";
  });
  CountingFactory tcp;
  const auto factory = MakeShmFactory(&store, {}, &tcp);
  EXPECT_TRUE(factory->Create({.name = "one", .members = {3}, .my_index = 0}).ok());
  EXPECT_FALSE(factory->Create({.name = "", .members = {3, 4}, .my_index = 0}).ok());
}

TEST(ShmSegment, ASeatIsHeldUntilItsOwnerGoes) {
  auto made = ShmSegment::Make(2);
  ASSERT_TRUE(made.ok()) << made.status();
  const std::string path = fmt::format("/proc/{}/fd/{}", ::getpid(), (*made)->fd());
  ASSERT_TRUE((*made)->TakeSeat(0).ok());
  // With the seat come the pages of its slots.
  struct stat file {};
  ASSERT_EQ(::fstat((*made)->fd(), &file), 0);
  EXPECT_GE(file.st_blocks * 512, 2 * kSlotBytes);
  EXPECT_FALSE((*made)->IsSeated(1));
  {
    auto opened = ShmSegment::Open(path, (*made)->Nonce(), 2);
    ASSERT_TRUE(opened.ok()) << opened.status();
    EXPECT_FALSE((*opened)->TakeSeat(0).ok()) << "it is taken";
    ASSERT_TRUE((*opened)->TakeSeat(1).ok());
    EXPECT_TRUE((*opened)->IsSeated(0));
    EXPECT_TRUE((*made)->IsSeated(1));
  }
  EXPECT_FALSE((*made)->IsSeated(1));
  EXPECT_FALSE(ShmSegment::Open(path, (*made)->Nonce(), 3).ok()) << "of another size";
  // What is no group's memory is not even opened.
  const Status other = ShmSegment::Open("/proc/self/exe", (*made)->Nonce(), 2).status();
  EXPECT_NE(base::Message(other).find("is not a group's shared memory"), std::string::npos)
      << other;
}

// Waits until a member sleeps in a call; returns if that member ends.
void AwaitAsleep(ShmSegment& segment, int member) {
  const MemberBlock& block = segment.member(member);
  while (block.asleep == 0 && block.state == MemberState::kHere) std::this_thread::yield();
}

// Who sleeps is woken, not found at its next look at the seats: that comes after the deadline here,
// so a call that nobody rings fails. `once` is one member's part of a round: in each, one of the
// two sleeps until the other, who first waits for that, does its part.
void ExpectRung(const std::function<Status(ProcessGroup&, ShmSegment&)>& once) {
  constexpr int kRounds = 40;
  auto made = ShmSegment::Make(2);
  ASSERT_TRUE(made.ok()) << made.status();
  auto opened = ShmSegment::Open(fmt::format("/proc/{}/fd/{}", ::getpid(), (*made)->fd()),
                                 (*made)->Nonce(), 2);
  ASSERT_TRUE(opened.ok()) << opened.status();
  ASSERT_TRUE((*made)->TakeSeat(0).ok());
  ASSERT_TRUE((*opened)->TakeSeat(1).ok());
  std::latch both_done(2);
  const auto run = [&](int index, std::unique_ptr<ShmSegment> seated) {
    ShmSegment& segment = *seated;
    ShmGroup group({.name = "bells", .members = {0, 1}, .my_index = index},
                   {.op_timeout = std::chrono::minutes(1)}, std::move(seated),
                   std::chrono::hours(1));
    Status status = OkStatus();
    for (int round = 0; round < kRounds && status.ok(); ++round) status = once(group, segment);
    EXPECT_EQ(status, OkStatus()) << "member " << index;
    both_done.arrive_and_wait();  // to leave ends the other's sends
  };
  std::thread second([&] { run(1, std::move(*opened)); });
  run(0, std::move(*made));
  second.join();
}

Status SendOne(ProcessGroup& group) {
  InlineStream stream;
  const int64_t x = 0;
  return group.Send(stream, &x, 1, DType::kI64, 1 - group.rank(), 0);
}
Status RecvOne(ProcessGroup& group) {
  InlineStream stream;
  int64_t x = 0;
  return group.Recv(stream, &x, 1, DType::kI64, 1 - group.rank(), 0);
}

TEST(ShmWaits, WhoArrivesRingsTheOthers) {
  ExpectRung([](ProcessGroup& group, ShmSegment& segment) {
    InlineStream stream;
    if (group.rank() == 0) AwaitAsleep(segment, 1);
    return group.Barrier(stream);
  });
}

TEST(ShmWaits, ASenderRingsTheReceiver) {
  ExpectRung([](ProcessGroup& group, ShmSegment& segment) {
    if (group.rank() == 0) return RecvOne(group);
    AwaitAsleep(segment, 0);
    return SendOne(group);
  });
}

TEST(ShmWaits, AReceiverRingsTheSenderOfAFullWindow) {
  int num_free = ProcessGroup::kSendWindow;  // the first member's alone
  ExpectRung([&](ProcessGroup& group, ShmSegment& segment) {
    if (group.rank() == 0) {
      for (; num_free > 0; --num_free) RETURN_IF_ERROR(SendOne(group));
      return SendOne(group);
    }
    AwaitAsleep(segment, 0);
    return RecvOne(group);
  });
}

TEST(ShmOutbox, MemoryIsUsedAgain) {
  auto segment = ShmSegment::Make(2);
  ASSERT_TRUE(segment.ok()) << segment.status();
  ShmOutbox outbox(segment->get(), 0);
  std::atomic<uint64_t>& taken = (*segment)->edge(0, 1, 7).taken;
  const ShmOutbox::Block first = outbox.Allocate(1, 7, 0, 10000);
  const ShmOutbox::Block second = outbox.Allocate(1, 7, 1, 5000);
  EXPECT_GE(second.offset, first.offset + 10000);
  taken = 1;
  EXPECT_EQ(outbox.Allocate(1, 7, 2, 9000).offset, first.offset);
  EXPECT_GE(outbox.Allocate(1, 7, 3, 100).offset, second.offset + 5000) << "nothing is free";
  taken = 4;
  EXPECT_EQ(outbox.Allocate(1, 9, 0, 5000).offset, second.offset)
      << "the best fit, though it was of another edge";
  (*segment)->edge(0, 1, 9).taken = 1;
  EXPECT_EQ(outbox.Allocate(1, 7, 4, 1 << 20).offset, 0) << "all is free: pieces are joined";
}

TEST(ShmOutbox, ALongTrainingNeedsNoMoreThanAShortOne) {
  auto segment = ShmSegment::Make(2);
  ASSERT_TRUE(segment.ok()) << segment.status();
  ShmOutbox outbox(segment->get(), 0);
  int64_t end = 0;
  for (uint64_t message = 0; message < 1000; ++message) {
    for (const int edge : {0, 1}) {
      const ShmOutbox::Block block = outbox.Allocate(1, edge, message, 100000 + edge);
      end = std::max(end, block.offset + block.capacity);
      // The receiver is three messages behind.
      if (message >= 3) (*segment)->edge(0, 1, edge).taken = message - 2;
    }
  }
  EXPECT_LE(end, 2 * 5 * 102400);
}

}  // namespace
}  // namespace mt::comm
