// Groups over copies (worker/comm/copies) on asynchronous devices that share their memory: the bits
// of groups of host memory in every order that is drawn, no wait or store that could be left out
// unseen, the end of waits, and where another group takes their place.
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/async/copies_rig.h"
#include "worker/comm/copies/copy_group.h"
#include "worker/comm/copies/exchange.h"
#include "worker/comm/reduce.h"

namespace mt::comm {
namespace {

using kernels::DType;
using kernels::async::AsyncWorld;
using kernels::async::Sharing;
using kernels::async::WaitName;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

struct Case {
  int size = 2;
  DType dtype = DType::kF32;
  int64_t count = 0;  // of a shard
};

// What all members obtain of one operation, by the arithmetic of reduce.h. Whole: size x count.
Bytes Expected(CommOp op, const Case& c, int rank) {
  const int64_t whole = c.size * c.count;
  const int64_t shard = c.count * kernels::SizeOf(c.dtype);
  std::vector<Bytes> given;
  given.reserve(static_cast<size_t>(c.size));
  for (int r = 0; r < c.size; ++r) given.push_back(Values(c.dtype, whole, r));
  std::vector<const void*> inputs;
  Bytes result;
  switch (op) {
    case CommOp::kAllReduce:
      result.resize(given[0].size());
      for (const Bytes& data : given) inputs.push_back(data.data());
      ReduceAllShards(inputs, result.data(), whole, {.dtype = c.dtype});
      return result;
    case CommOp::kReduceScatter:
      result.resize(static_cast<size_t>(shard));
      for (const Bytes& data : given) inputs.push_back(data.data() + rank * shard);
      ReduceInOrder(inputs, rank, result.data(), c.count, {.dtype = c.dtype});
      return result;
    case CommOp::kAllGather:
      for (int r = 0; r < c.size; ++r) {
        const auto begin = given[static_cast<size_t>(r)].begin() + r * shard;
        result.insert(result.end(), begin, begin + shard);
      }
      return result;
    default:
      return given.back();  // broadcast by the last one
  }
}

Status Call(CommOp op, const Case& c, const Member& me) {
  ProcessGroup& group = *me.group;
  const int64_t whole = c.size * c.count;
  const int64_t shard = c.count * kernels::SizeOf(c.dtype);
  switch (op) {
    case CommOp::kAllReduce:
      return group.AllReduce(*me.stream, me.in(), me.out(), whole, c.dtype, ReduceOp::kSum);
    case CommOp::kReduceScatter:
      return group.ReduceScatter(*me.stream, me.in(), me.out(), c.count, c.dtype, ReduceOp::kSum);
    case CommOp::kAllGather:
      return group.AllGather(*me.stream, me.in() + group.rank() * shard, me.out(), c.count,
                             c.dtype);
    default:
      return group.Broadcast(*me.stream, me.in(), whole, c.dtype, c.size - 1);
  }
}

class CopiesTest : public testing::TestWithParam<int> {};

TEST_P(CopiesTest, GivesTheBitsOfGroupsOfHostMemory) {
  constexpr CommOp kOps[] = {CommOp::kAllReduce, CommOp::kReduceScatter, CommOp::kAllGather,
                             CommOp::kBroadcast};
  for (uint64_t seed = 0; seed < 2; ++seed) {
    Rig rig({.size = GetParam(), .world = {.seed = seed}});
    for (const DType dtype : {DType::kF32, DType::kF64, DType::kBf16, DType::kF16}) {
      for (const int64_t count : {0, 1, 7, 64, 65, 700}) {
        const Case c{.size = GetParam(), .dtype = dtype, .count = count};
        for (const CommOp op : kOps) {
          rig.Run([&](int rank) {
            Member& me = rig.member(rank);
            me.given = Values(dtype, c.size * count, rank);
            const Bytes expected = Expected(op, c, rank);
            me.result.assign(expected.size(), std::byte{0xEE});
            me.device().Copy(*me.stream, me.in(), me.given.data(),
                             static_cast<int64_t>(me.given.size()));
            const Status status = Call(op, c, me);
            EXPECT_TRUE(status.ok()) << status;
            me.device().Copy(*me.stream, me.result.data(),
                             op == CommOp::kBroadcast ? me.in() : me.out(),
                             static_cast<int64_t>(me.result.size()));
            me.stream->Synchronize();
            EXPECT_TRUE(me.result == expected)
                << Name(op) << " of " << count << " " << kernels::Name(dtype) << ", rank " << rank;
          });
        }
      }
    }
    EXPECT_THAT(rig.world().Races(), IsEmpty());
    EXPECT_THAT(rig.world().EarlyFrees(), IsEmpty());
  }
}

// In place, as gradients and weights are: a shard's sum replaces the term in it.
TEST_P(CopiesTest, WorksInPlace) {
  const Case c{.size = GetParam(), .count = 100};
  const int64_t shard = c.count * 4;
  Rig rig({.size = c.size});
  rig.Run([&](int rank) {
    Member& me = rig.member(rank);
    const auto check = [&](CommOp op, std::byte* at, const std::function<Status()>& call) {
      me.given = Values(c.dtype, c.size * c.count, rank);
      const Bytes expected = Expected(op, c, rank);
      me.result.resize(expected.size());
      me.device().Copy(*me.stream, me.in(), me.given.data(), c.size * shard);
      EXPECT_TRUE(call().ok());
      me.device().Copy(*me.stream, me.result.data(), at, static_cast<int64_t>(expected.size()));
      me.stream->Synchronize();
      EXPECT_TRUE(me.result == expected) << Name(op) << ", rank " << rank;
    };
    check(CommOp::kAllReduce, me.in(), [&] {
      return me.group->AllReduce(*me.stream, me.in(), me.in(), c.size * c.count, c.dtype,
                                 ReduceOp::kSum);
    });
    std::byte* const own = me.in() + rank * shard;
    check(CommOp::kReduceScatter, own, [&] {
      return me.group->ReduceScatter(*me.stream, me.in(), own, c.count, c.dtype, ReduceOp::kSum);
    });
    check(CommOp::kAllGather, me.in(),
          [&] { return me.group->AllGather(*me.stream, own, me.in(), c.count, c.dtype); });
  });
  EXPECT_THAT(rig.world().Races(), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Sizes, CopiesTest, testing::Values(2, 3, 4, 8));

using Turns = std::vector<CommOp>;

// Each member writes all memory that a collective touches before it, and reads all behind it, on
// one stream.
void TakeTurns(Rig& rig, int size, const Turns& turns) {
  const Case c{.size = size, .count = 100};
  const int64_t bytes = c.size * c.count * 4;
  rig.Run([&](int rank) {
    const Member& me = rig.member(rank);
    me.device().Zero(*me.stream, me.scratch->data(), me.scratch->bytes());
    for (const CommOp op : turns) {
      me.device().Zero(*me.stream, me.in(), bytes);
      me.device().Zero(*me.stream, me.out(), bytes);
      static_cast<void>(Call(op, c, me));
      me.device().Copy(*me.stream, me.at(kMemory / 4), me.in(), bytes);
      me.device().Copy(*me.stream, me.at(3 * kMemory / 4), me.out(), bytes);
    }
    me.stream->Synchronize();
  });
}

// What nobody notices the loss of.
std::vector<std::string> Unnoticed(int size, const Turns& turns) {
  std::vector<WaitName> needed;
  {
    Rig rig({.size = size});
    TakeTurns(rig, size, turns);
    needed = rig.world().NeededWaits();
    EXPECT_THAT(rig.world().Races(), IsEmpty());
  }
  EXPECT_THAT(needed, Not(IsEmpty()));
  std::vector<std::string> unnoticed;
  for (const WaitName& wait : needed) {
    if (wait.rank != 0) continue;  // ranks do the same
    try {
      Rig rig({.size = size, .world = {.drop = wait}});
      TakeTurns(rig, size, turns);
      if (rig.world().Races().empty()) unnoticed.push_back(wait.site);
    } catch (const kernels::DeviceError&) {  // a word that nobody stores
    }
  }
  return unnoticed;
}

TEST(CopiesDropTest, NoWaitOrStoreCanBeLeftOut) {
  for (const int size : {2, 3}) {
    EXPECT_THAT(Unnoticed(size, {CommOp::kReduceScatter, CommOp::kReduceScatter}), IsEmpty());
    EXPECT_THAT(Unnoticed(size, {CommOp::kAllGather, CommOp::kAllGather, CommOp::kBroadcast,
                                 CommOp::kBroadcast}),
                IsEmpty());
  }
  // Whoever has sent the last terms of an all-reduce, exchange 2, lets the sums be written, 3; and
  // who has sent those needs no term any more, 4. Words 0 and 1: of members that enter.
  const auto only = [](const std::string& words) {
    return testing::Each(
        testing::ContainsRegex("waits for word [" + words + "] of rank 0 to be [346]"));
  };
  const Turns sums = {CommOp::kAllReduce, CommOp::kAllReduce};
  EXPECT_THAT(Unnoticed(2, sums), only("0"));
  EXPECT_THAT(Unnoticed(3, sums), only("01"));
}

TEST(CopiesAbortTest, EndsWaitsForAMemberThatNeverComes) {
  const Case c{.count = 10};
  for (uint64_t seed = 0; seed < 10; ++seed) {
    Rig rig({.world = {.seed = seed}});
    Member& first = rig.member(0);
    rig.Run([&](int rank) {
      if (rank != 0) return;
      EXPECT_TRUE(Call(CommOp::kAllReduce, c, first).ok());
    });
    rig.Run([&](int rank) {
      if (rank == 1) return first.group->Abort("told to leave");
      first.stream->Synchronize();
    });
    EXPECT_EQ(first.group->status().code(), absl::StatusCode::kAborted);
    EXPECT_EQ(Call(CommOp::kAllReduce, c, first), first.group->status());
  }
}

// What a member had enqueued must not take back the end of the other's waits.
TEST(CopiesAbortTest, StoresOnTheirWayDoNotUndoIt) {
  const Case c{.count = 10};
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    Rig rig({.world = {.seed = seed}});
    rig.Run([&](int rank) {
      for (int i = 0; i < (rank == 0 ? 3 : 1); ++i)
        EXPECT_TRUE(Call(CommOp::kAllReduce, c, rig.member(rank)).ok());
    });
    rig.Run([&](int rank) {
      rig.member(rank).group->Abort("told to leave");
      rig.member(rank).stream->Synchronize();
    });
  }
}

// A member that dies takes no wait back, but what it had enqueued may still be done.
TEST(CopiesAbortTest, StoresOfADeadMemberUndoItUntilTheNextLook) {
  const Case c{.count = 10};
  int undone = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    Rig rig({.world = {.seed = seed}});
    Member& first = rig.member(0);
    rig.Run([&](int rank) {
      for (int i = 0; i < (rank == 0 ? 3 : 1); ++i)
        EXPECT_TRUE(Call(CommOp::kAllReduce, c, rig.member(rank)).ok());
    });
    rig.Run([&](int rank) {
      if (rank == 0) return first.group->Abort("the other has died");
      rig.member(1).stream->Synchronize();  // the last that it does
    });
    const auto ends = [&](bool looked) {
      try {
        rig.Run([&](int rank) {
          if (rank != 0) return;
          if (looked) dynamic_cast<CopyGroup&>(*first.group).Look(base::Clock::Real()->Now());
          first.stream->Synchronize();
        });
      } catch (const kernels::DeviceError&) {
        return false;
      }
      return true;
    };
    if (seed % 2 == 0) {
      EXPECT_TRUE(ends(true));
    } else if (!ends(false)) {
      ++undone;
    }
  }
  EXPECT_GT(undone, 0) << "no order had such stores";
}

TEST(CopiesDeadlineTest, NamesWhoHasNotCome) {
  const Case c{.size = 3, .count = 10};
  Rig rig({.size = 3});
  const auto look = [&](std::chrono::minutes later) {
    dynamic_cast<CopyGroup&>(*rig.member(0).group).Look(base::Clock::Real()->Now() + later);
  };
  rig.Run([&](int rank) {
    EXPECT_TRUE(Call(CommOp::kAllGather, c, rig.member(rank)).ok());
    rig.member(rank).stream->Synchronize();
    if (rank == 2) return;
    EXPECT_TRUE(Call(CommOp::kAllReduce, c, rig.member(rank)).ok());
  });
  rig.Run([&](int rank) {
    if (rank != 0) return;
    look(std::chrono::minutes(9));  // ten are allowed
    EXPECT_TRUE(rig.member(0).group->status().ok());
    look(std::chrono::minutes(11));  // rank 1 may have entered meanwhile
    look(std::chrono::minutes(22));
  });
  EXPECT_THAT(
      rig.member(0).group->status().ToString(),
      AllOf(HasSubstr("DEADLINE_EXCEEDED"), HasSubstr("all_reduce sum of 30 f32 (exchange 3)"),
            HasSubstr("rank 2 (world 2) is in exchange 1"), Not(HasSubstr("rank 1 (world 1) is"))));
}

// The host is far ahead of the device: the peer enters one exchange after another, each within the
// deadline, but not yet the newest.
TEST(CopiesDeadlineTest, AGroupThatGoesOnIsNotLate) {
  const Case c{.size = 2, .count = 10};
  Rig rig({.size = 2});
  const auto& group = rig.member(0).group;
  const base::MonotonicTime begin = base::Clock::Real()->Now();
  const auto look = [&](int minutes) {
    rig.Run([&](int rank) {
      if (rank == 0) dynamic_cast<CopyGroup&>(*group).Look(begin + std::chrono::minutes(minutes));
    });
    return group->status();
  };
  const auto call = [&] {
    rig.Run([&](int rank) {
      if (rank != 1) return;
      EXPECT_TRUE(Call(CommOp::kAllGather, c, rig.member(rank)).ok());
      rig.member(rank).stream->Synchronize();
    });
  };
  rig.Run([&](int rank) {
    for (int i = 0; rank == 0 && i < 3; ++i)
      EXPECT_TRUE(Call(CommOp::kAllGather, c, rig.member(rank)).ok());
  });
  EXPECT_TRUE(look(9).ok());
  call();
  EXPECT_TRUE(look(11).ok()) << "the peer came to the first";
  EXPECT_TRUE(look(20).ok());
  call();
  EXPECT_TRUE(look(22).ok()) << "and to the second";
  EXPECT_TRUE(look(31).ok());
  EXPECT_EQ(look(33).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(group->status().ToString(), HasSubstr("rank 1 (world 1) is in exchange 2"));
}

TEST(CopiesErrorTest, SaysWhatItCannotDo) {
  const auto error_of = [](const std::function<Status(const Member&)>& call, bool share = true) {
    Rig rig({.share = share});
    std::string text;
    rig.Run([&](int rank) {
      const Status status = call(rig.member(rank));
      if (rank == 0) text = status.ToString();
    });
    return text;
  };
  const auto sum = [](const Member& me, DType dtype, ReduceOp op) {
    return me.group->AllReduce(*me.stream, me.in(), me.in(), 4, dtype, op);
  };
  EXPECT_THAT(error_of([&](const Member& me) { return sum(me, DType::kF32, ReduceOp::kMax); }),
              AllOf(HasSubstr("UNIMPLEMENTED"), HasSubstr("sums of floats alone")));
  EXPECT_THAT(error_of([&](const Member& me) { return sum(me, DType::kI32, ReduceOp::kSum); }),
              HasSubstr("sums of floats alone"));
  EXPECT_THAT(error_of([&](const Member& me) {
                return me.group->Send(*me.stream, me.in(), 1, DType::kF32, 1 - me.group->rank(), 0);
              }),
              HasSubstr("groups over copies have no send"));
  EXPECT_THAT(error_of([&](const Member& me) {
                return me.group->AllReduce(*me.stream, me.at(kMemory - 8), me.at(kMemory - 8), 4,
                                           DType::kF32, ReduceOp::kSum);
              }),
              HasSubstr("16 bytes that lie in no memory of Share"));
  EXPECT_THAT(
      error_of([&](const Member& me) { return sum(me, DType::kF32, ReduceOp::kSum); }, false),
      HasSubstr("lie in no memory of Share"));
}

TEST(CopiesFactoryTest, MembersAgreeOnAnotherGroupWhereOneRefuses) {
  for (const Sharing refusal :
       {Sharing::kNone, Sharing::kNoPath, Sharing::kNoExport, Sharing::kNoImport}) {
    Rig rig({.size = 3, .sharing = [=](int rank) { return rank == 1 ? refusal : Sharing::kAll; }});
    const Case c{.size = 3, .count = 10};
    rig.Run([&](int rank) {
      const Member& me = rig.member(rank);
      EXPECT_EQ(me.group->ScratchBytes(1000), 0) << "a group over copies";
      EXPECT_FALSE(me.group->shares_memory());
      EXPECT_TRUE(Call(CommOp::kAllReduce, c, me).ok());
      me.stream->Synchronize();
    });
    EXPECT_THAT(rig.world().EarlyFrees(), IsEmpty()) << "words that were mapped already";
  }
  Rig rig({});
  EXPECT_EQ(rig.member(0).group->ScratchBytes(1000), 512) << "half, rounded up to 256";
  EXPECT_TRUE(rig.member(0).group->shares_memory());
}

// Devices that reach each other, on one machine.
TEST(CopiesFactoryTest, NodesOfOneMachineAreDifferentHosts) {
  const auto node_of = [](int rank) { return HostIdentity(rank < 2 ? "node-a" : "node-b"); };
  Rig two({.size = 3, .host_of = node_of});
  EXPECT_EQ(two.member(0).group->ScratchBytes(1000), 0) << "a group over copies";
  const Case c{.size = 3, .count = 10};
  two.Run([&](int rank) {
    EXPECT_TRUE(Call(CommOp::kAllReduce, c, two.member(rank)).ok());
    two.member(rank).stream->Synchronize();
  });
  Rig alone({.size = 3, .host_of = node_of, .own_kind = true});
  EXPECT_EQ(alone.member(2).group, nullptr);
  Rig one({.size = 2, .host_of = node_of});
  EXPECT_EQ(one.member(0).group->ScratchBytes(1000), 512) << "both are node-a's";
  Rig unknown({.size = 2, .host_of = [](int) { return std::string(); }});
  EXPECT_EQ(unknown.member(0).group->ScratchBytes(1000), 0) << "nobody knows where they are";
}

TEST(ExchangeTest, TextsAreJoinedAndSplit) {
  const std::vector<std::string> texts = {"", std::string("a\0b", 3), "", "long text"};
  EXPECT_EQ(Split(Join(texts)), texts);
  EXPECT_THAT(Split(""), IsEmpty());
  EXPECT_THAT(Split(Join(texts).substr(1)), IsEmpty());
  EXPECT_THAT(Split("short"), IsEmpty());
  EXPECT_THAT(Split(Join({"x"})), ElementsAre("x"));
}

}  // namespace
}  // namespace mt::comm
