// Reduce-scatters over copies that leave their terms to the kernel that adds them, and memory that
// a driver does not share.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/async/async_peer_memory.h"
#include "kernels/ops/vector.h"
#include "tests/worker/async/copies_rig.h"
#include "worker/comm/reduce.h"

namespace mt::comm {
namespace {

using kernels::DType;
using kernels::async::Sharing;
using kernels::async::WaitName;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

class CopiesTermsTest : public testing::TestWithParam<int> {};

// The sum of the terms in their order, to the bit, whatever the type; this member's own shard may
// be written after the call.
TEST_P(CopiesTermsTest, AddUpToTheSum) {
  const int size = GetParam();
  Rig rig({.size = size, .world = {.seed = 4}});
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBf16, DType::kF16}) {
    const int64_t count = kSlot / kernels::SizeOf(dtype) - 3;
    const int64_t shard = count * kernels::SizeOf(dtype);
    rig.Run([&](int rank) {
      Member& me = rig.member(rank);
      ASSERT_TRUE(me.group->terms()->Fit(size * shard));
      EXPECT_FALSE(me.group->terms()->Fit(size * (kSlot + 1)));
      std::vector<Bytes> given;
      std::vector<const void*> inputs;
      for (int r = 0; r < size; ++r) given.push_back(Values(dtype, size * count, r));
      for (const Bytes& data : given) inputs.push_back(data.data() + rank * shard);
      Bytes expected(static_cast<size_t>(shard));
      ReduceInOrder(inputs, rank, expected.data(), count, {.dtype = dtype});
      me.given = given[static_cast<size_t>(rank)];
      for (int r = 0; r < size; ++r) {
        if (r == rank) continue;
        me.device().Copy(*me.stream, me.in() + r * shard, me.given.data() + r * shard, shard);
      }
      EXPECT_TRUE(
          me.group->ReduceScatter(*me.stream, me.in(), nullptr, count, dtype, ReduceOp::kSum).ok());
      me.device().Copy(*me.stream, me.in() + rank * shard, me.given.data() + rank * shard, shard);
      kernels::Partials terms;
      for (const void* const term : me.group->terms()->Of(me.in(), count, dtype))
        terms.tensor[static_cast<size_t>(terms.count++)] = {
            const_cast<void*>(term), dtype, {count}};
      EXPECT_EQ(terms.count, size);
      me.backend->vector().SumPartials(*me.stream, {me.out(), dtype, {count}}, terms);
      me.result.resize(expected.size());
      me.device().Copy(*me.stream, me.result.data(), me.out(), shard);
      me.stream->Synchronize();
      EXPECT_TRUE(me.result == expected) << kernels::Name(dtype) << ", rank " << rank;
    });
  }
  EXPECT_THAT(rig.world().Races(), IsEmpty());
  EXPECT_THAT(rig.world().EarlyFrees(), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Sizes, CopiesTermsTest, testing::Values(2, 3, 8));

// Twice in a row, whose terms are read in between.
void AddTwice(Rig& rig, int size) {
  constexpr int64_t kCount = 16;
  rig.Run([&](int rank) {
    const Member& me = rig.member(rank);
    me.device().Zero(*me.stream, me.scratch->data(), me.scratch->bytes());
    for (int i = 0; i < 2; ++i) {
      me.device().Zero(*me.stream, me.in(), size * kCount * 4);
      static_cast<void>(me.group->ReduceScatter(*me.stream, me.in(), nullptr, kCount, DType::kF32,
                                                ReduceOp::kSum));
      me.device().Copy(*me.stream, me.out(), me.scratch->data(), me.scratch->bytes());
    }
    me.stream->Synchronize();
  });
}

TEST(CopiesTermsDropTest, NoWaitOrStoreCanBeLeftOut) {
  for (const int size : {2, 3}) {
    std::vector<WaitName> needed;
    {
      Rig rig({.size = size});
      AddTwice(rig, size);
      needed = rig.world().NeededWaits();
      EXPECT_THAT(rig.world().Races(), IsEmpty());
    }
    EXPECT_GT(needed.size(), 8U);
    for (const WaitName& wait : needed) {
      if (wait.rank != 0) continue;  // ranks do the same
      try {
        Rig rig({.size = size, .world = {.drop = wait}});
        AddTwice(rig, size);
        EXPECT_FALSE(rig.world().Races().empty()) << wait.Text();
      } catch (const kernels::DeviceError&) {  // a word that nobody stores
      }
    }
  }
}

// Of a rank's driver alone: all hear of it, and their groups stay as they are.
TEST(CopiesRefusalTest, EndsNoGroup) {
  Rig rig({.size = 3,
           .sharing = [](int rank) { return rank == 1 ? Sharing::kWordsAlone : Sharing::kAll; },
           .share = false});
  rig.Run([&](int rank) {
    const Member& me = rig.member(rank);
    const Status shared = me.group->Share({.operands = {{me.memory->data(), kMemory}},
                                           .scratch = {me.scratch->data(), me.scratch->bytes()}});
    EXPECT_EQ(shared.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(shared.ToString(),
                AllOf(HasSubstr("rank 1 (world 1): its memory cannot be shared: "),
                      HasSubstr("this device names no memory")));
    EXPECT_TRUE(me.group->status().ok());
    EXPECT_FALSE(me.group->terms()->Fit(4));
  });
}

// Whoever sees it first breaks the group, and the others hear of that.
TEST(CopiesRefusalTest, MembersShareAsMuch) {
  Rig rig({.share = false});
  std::vector<std::string> said(2);
  rig.Run([&](int rank) {
    const Member& me = rig.member(rank);
    const Status shared =
        me.group->Share({.operands = {{me.memory->data(), rank == 0 ? kMemory : kMemory / 2}},
                         .scratch = {me.scratch->data(), me.scratch->bytes()}});
    EXPECT_FALSE(shared.ok());
    EXPECT_EQ(me.group->status(), shared);
    said[static_cast<size_t>(rank)] = shared.ToString();
  });
  EXPECT_THAT(said,
              Contains(AllOf(HasSubstr("FAILED_PRECONDITION"), HasSubstr("shares other memory"))));
}

}  // namespace
}  // namespace mt::comm
