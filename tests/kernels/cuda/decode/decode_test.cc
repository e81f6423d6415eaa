// Decoding against the CPU backend: products of few rows, attention over a cache; both by bits for
// other rows beside them.
#include <algorithm>
#include <numeric>

#include "tests/kernels/cuda/twin.h"

namespace mt::kernels::cuda {
namespace {

class CudaFewRowsTest : public GpuTest {};
INSTANTIATE_FOR_TYPES(CudaFewRowsTest);

TEST_P(CudaFewRowsTest, AreTheCpusSumsWhateverIsComputedBesideARow) {
  struct Product {
    int64_t n, k;
  };
  // Rows that are no vectors, a matrix for four columns a warp, a last warp without all of its.
  for (const Product& p : {Product{5, 8},
                           {7, 37},
                           {301, 768},
                           {768, 3072},
                           {9001, 256},
                           {9001, 264},
                           {4096, 64},
                           {8200, 96},
                           {2, 1003}}) {
    Twins twins;
    const Operand x = twins.Random(GetParam(), {kMaxFewRows, p.k}),
                  w = twins.Random(GetParam(), {p.n, p.k}), bias = twins.Random(GetParam(), {p.n});
    std::vector<std::byte> all;
    for (int64_t rows = kMaxFewRows; rows >= 1; --rows) {
      const Operand y = Twins::Output(GetParam(), {rows, p.n});
      for (const Side side : kSides) {
        BackendOf(side).linear().ForwardFewRows(
            StreamOf(side),
            {.x = x[side].Rows(0, rows), .w = w[side], .bias = bias[side], .y = y[side]});
      }
      const std::string what =
          std::to_string(p.n) + " x " + std::to_string(p.k) + ", " + std::to_string(rows) + " rows";
      ExpectClose(y, Kind::kGemm, GetParam(), what);
      const std::vector<std::byte> bytes = y.Bytes(Side::kGpu);
      if (rows == kMaxFewRows) all = bytes;
      EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), all.begin())) << what;
    }
    const Operand y = Twins::Output(GetParam(), {1, p.n});
    for (const Side side : kSides) {
      BackendOf(side).linear().ForwardFewRows(
          StreamOf(side), {.x = x[side].Rows(3, 1), .w = w[side], .y = y[side]});
    }
    ExpectClose(y, Kind::kGemm, GetParam(), "without a bias");
  }
}

class CudaDecodeTest : public GpuTest {};
INSTANTIATE_FOR_TYPES(CudaDecodeTest);

struct DecodeCase {
  int64_t a = 4, g = 4, d = 64, room = 300, window = 0;
  bool alibi = false;
  std::string Text() const {
    return "a " + std::to_string(a) + " g " + std::to_string(g) + " d " + std::to_string(d) +
           " room " + std::to_string(room) + " window " + std::to_string(window) +
           (alibi ? " alibi" : "");
  }
};

const DecodeCase kDecodeCases[] = {{},
                                   {.room = 40},
                                   {.a = 8, .g = 2, .d = 128, .room = 1100},
                                   {.a = 6, .g = 1, .d = 80, .alibi = true},
                                   {.a = 3, .g = 3, .d = 37, .window = 100, .alibi = true},
                                   {.d = 256, .room = 600, .window = 301},
                                   {.d = 5, .room = 17}};

// Two of three sequences of as many positions as there is room for; row r is position r / 2 of
// sequence 2 (r % 2). Keys come in one call, then the last rows again.
struct Caches {
  Caches(const DecodeCase& c, DType type)
      : qkv(Twins(7).Random(type, {2 * c.room, (c.a + 2 * c.g) * c.d}, 2)),
        k(Twins::Output(type, {3, c.g, c.room, c.d})),
        v(Twins::Output(type, {3, c.g, c.room, c.d})) {
    if (!c.alibi) return;
    slopes = Operand(DType::kF32, {c.a});
    for (const Side side : kSides) {
      cpu::Array<float> values({c.a});
      FillAlibiSlopes(c.a, 0, values.tensor());
      slopes.SetBytes(side, values.data());
    }
  }
  Operand qkv, k, v, slopes;
};

// Rows [begin, end) of all, in one call on each side.
Operand Decode(const DecodeCase& c, DType type, const Caches& caches, int64_t begin, int64_t end,
               std::initializer_list<Side> sides, bool one_row_each = false) {
  const int64_t rows = end - begin;
  std::vector<int32_t> sequences, positions;
  for (int64_t r = begin; r < end; ++r) {
    sequences.push_back(static_cast<int32_t>(2 * (r % 2)));
    positions.push_back(static_cast<int32_t>(r / 2));
  }
  const Operand of_sequences = Twins::Of<int32_t>({rows}, sequences),
                at = Twins::Of<int32_t>({rows}, positions);
  Operand o = Twins::Output(type, {rows, c.a * c.d});
  for (const Side side : sides) {
    AttentionDecodeArgs args{.dtype = type,
                             .a = c.a,
                             .g = c.g,
                             .d = c.d,
                             .scale = 0.1,
                             .window = c.window,
                             .slopes = caches.slopes[side],
                             .qkv = caches.qkv[side].Rows(begin, rows),
                             .sequences = of_sequences[side],
                             .positions = at[side],
                             .one_row_each = one_row_each,
                             .k_cache = caches.k[side],
                             .v_cache = caches.v[side],
                             .o = o[side]};
    AttentionOps& attention = BackendOf(side).attention();
    SideScratch scratch(side, attention.DecodeWorkspaceBytes(args));
    args.workspace = scratch.workspace();
    attention.Decode(StreamOf(side), args);
    StreamOf(side).Synchronize();
  }
  return o;
}

TEST_P(CudaDecodeTest, IsTheCpusWhateverIsComputedBesideARow) {
  for (const DecodeCase& c : kDecodeCases) {
    const Caches caches(c, GetParam());
    const int64_t rows = 2 * c.room;
    const Operand all = Decode(c, GetParam(), caches, 0, rows, {Side::kCpu, Side::kGpu});
    ExpectClose(all, Kind::kAttention, GetParam(), c.Text());
    const std::vector<std::byte> expected = all.Bytes(Side::kGpu);
    // A few rows by themselves: the first ones, around the end of a part, the last ones.
    const int64_t row_bytes = c.a * c.d * SizeOf(GetParam());
    for (const int64_t row : {int64_t{0}, int64_t{3}, std::min<int64_t>(rows - 1, 511),
                              std::min<int64_t>(rows - 1, 513), rows - 1}) {
      // The GPU's caches have lost the row's own key and value: it brings them.
      for (const Operand* cache : {&caches.k, &caches.v}) {
        const int64_t at = (row % 2 * 2 * c.g * c.room + row / 2) * c.d * SizeOf(GetParam());
        const std::vector<std::byte> nan(static_cast<size_t>(c.d * SizeOf(GetParam())),
                                         std::byte{0xFF});
        for (int64_t g = 0; g < c.g; ++g) {
          BackendOf(Side::kGpu)
              .device()
              .Copy(StreamOf(Side::kGpu),
                    static_cast<char*>((*cache)[Side::kGpu].data) + at +
                        g * c.room * c.d * SizeOf(GetParam()),
                    nan.data(), std::ssize(nan));
        }
        StreamOf(Side::kGpu).Synchronize();
      }
      const Operand one = Decode(c, GetParam(), caches, row, row + 1, {Side::kGpu}, true);
      const std::vector<std::byte> bytes = one.Bytes(Side::kGpu);
      EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), expected.begin() + row * row_bytes))
          << c.Text() << " row " << row;
    }
  }
}

TEST_P(CudaDecodeTest, HeadsThatAreTooLargeAreRefused) {
  const Operand any = Twins::Output(GetParam(), {1, 3 * 264});
  const Operand cache = Twins::Output(GetParam(), {1, 1, 4, 264});
  const AttentionDecodeArgs args{.dtype = GetParam(),
                                 .a = 1,
                                 .g = 1,
                                 .d = 264,
                                 .qkv = any[Side::kGpu],
                                 .k_cache = cache[Side::kGpu],
                                 .v_cache = cache[Side::kGpu]};
  EXPECT_THROW(BackendOf(Side::kGpu).attention().DecodeWorkspaceBytes(args), DeviceError);
}

}  // namespace
}  // namespace mt::kernels::cuda
