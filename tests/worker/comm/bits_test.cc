// Bit-equality of sums: all ranks, reruns, message paths and implementations give the bits of
// reduce.h's order.
#include <cstring>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "tests/worker/comm/group_harness.h"
#include "worker/comm/process_group.h"
#include "worker/comm/reduce.h"

namespace mt::comm {
namespace {

using kernels::DType;
using Bytes = std::vector<std::byte>;

struct Case {
  Kind kind;
  int num_ranks;
};

class BitsTest : public testing::TestWithParam<Case> {
 protected:
  int num_ranks() const { return GetParam().num_ranks; }
};

// Values whose sums depend on the order in every type.
Bytes RandomInput(DType dtype, int64_t count, int rank) {
  std::mt19937 generator(static_cast<uint32_t>(rank) + 100);
  std::normal_distribution<double> normal(0, 100);
  Bytes data(static_cast<size_t>(count * kernels::SizeOf(dtype)));
  for (int64_t i = 0; i < count; ++i) {
    const double x = normal(generator);
    std::byte* to = data.data() + i * kernels::SizeOf(dtype);
    if (dtype == DType::kF32) {
      const auto v = static_cast<float>(x);
      std::memcpy(to, &v, sizeof(v));
    } else if (dtype == DType::kF16) {
      const auto v = static_cast<_Float16>(x);
      std::memcpy(to, &v, sizeof(v));
    } else {
      std::memcpy(to, &x, sizeof(x));
    }
  }
  return data;
}

TEST_P(BitsTest, AreThoseOfTheDocumentedOrder) {
  // Sizes on both sides of the border between the small and the bulk path.
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kF16}) {
    for (const int64_t count : {int64_t{8}, int64_t{2051}, int64_t{700003}}) {
      std::vector<Bytes> inputs;
      std::vector<const void*> pointers;
      for (int rank = 0; rank < num_ranks(); ++rank) {
        inputs.push_back(RandomInput(dtype, count, rank));
      }
      for (const Bytes& input : inputs) pointers.push_back(input.data());
      Bytes expected(inputs[0].size());
      ReduceAllShards(pointers, expected.data(), count, {.dtype = dtype, .op = ReduceOp::kSum});
      for (int rerun = 0; rerun < 2; ++rerun) {
        Ranks ranks(GetParam().kind, num_ranks());
        ranks.Run("bits", [&](ProcessGroup& group) {
          InlineStream stream;
          Bytes out(expected.size());
          ASSERT_EQ(group.AllReduce(stream, inputs[static_cast<size_t>(group.rank())].data(),
                                    out.data(), count, dtype, ReduceOp::kSum),
                    OkStatus());
          EXPECT_TRUE(out == expected)
              << count << " " << kernels::Name(dtype) << ", rank " << group.rank();
        });
      }
    }
  }
}

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  for (const Kind kind : {Kind::kThreads, Kind::kGloo, Kind::kShm}) {
    for (const int num_ranks : {2, 3, 4}) cases.push_back({kind, num_ranks});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Implementations, BitsTest, testing::ValuesIn(AllCases()),
                         [](const auto& param) {
                           return fmt::format("{}_{}", Name(param.param.kind),
                                              param.param.num_ranks);
                         });

}  // namespace
}  // namespace mt::comm
