// AddNorm and its gradient against the CPU backend; masks bit for bit.
#include "tests/kernels/cuda/twin.h"

namespace mt::kernels::cuda {
namespace {

class CudaAddNormTest : public GpuTest {};
INSTANTIATE_FOR_TYPES(CudaAddNormTest);

struct AddNormCase {
  int64_t s = 10, b = 3, h = 768;
  bool residual = true;
  int partials = 1;
  bool bias = true, position = false;
  double dropout = 0;
  NormKind kind = NormKind::kLayerNorm;
  bool norm = true, shift = true, one_plus = false;
  int dys = 1;                 // partials of the gradient of y
  bool rounded = false;        // both sums
  bool own_positions = false;  // each row has its own place in the table

  std::string Text() const {
    return "h " + std::to_string(h) + " partials " + std::to_string(partials) + " dropout " +
           std::to_string(dropout) + (norm ? "" : " without norm") +
           (kind == NormKind::kRmsNorm ? " rms" : "");
  }
};

// What TestConfig's GPU has no room for.
bool IsTooWide(int64_t h) { return TestConfig().shared_bytes > 0 && h > 8192; }

// Widths of one warp, of a block, of several turns, and odd ones; every optional operand both ways.
const AddNormCase kAddNormCases[] = {
    {},
    {.dropout = 0.1, .dys = 3},
    {.s = 3000, .dropout = 0.1},
    {.s = 1000, .b = 2, .h = 64, .dropout = 0.5},
    {.h = 7},
    {.h = 1001, .dropout = 0.1},
    {.h = 200, .residual = false, .position = true, .dropout = 0.1},
    {.h = 200, .residual = false, .position = true, .dropout = 0.1, .own_positions = true},
    {.s = 300, .b = 4, .h = 2048, .residual = false, .position = true, .own_positions = true},
    {.h = 1024, .partials = 4, .kind = NormKind::kRmsNorm, .shift = false, .one_plus = true},
    {.h = 1600, .partials = 2, .dropout = 0.1, .dys = 2},
    {.s = 700, .b = 4, .h = 2048, .dropout = 0.1},
    {.h = 5120, .bias = false, .kind = NormKind::kRmsNorm, .shift = false},
    {.h = 12288, .dropout = 0.1},
    // More rows than a GPU takes at once, so that stages of shared memory come round again.
    {.s = 1500, .b = 4, .h = 256, .dropout = 0.1},
    {.s = 1500, .b = 4, .h = 512},
    {.s = 700, .b = 8, .h = 1024, .dropout = 0.1},
    {.s = 500, .b = 8, .h = 768, .dropout = 0.1, .dys = 3},
    {.s = 130, .b = 8, .h = 5120, .dropout = 0.1},
    {.s = 40, .b = 8, .h = 8192, .dys = 2},
    {.h = 768, .partials = 2, .dropout = 0.1, .dys = 2, .rounded = true},
    {.h = 2304, .partials = 2, .dys = 2, .rounded = true},
    {.h = 1001, .partials = 4, .dys = 4, .rounded = true},
    {.h = 768, .norm = false},
    {.h = 768, .dropout = 0.1, .norm = false},
};

struct AddNormProblem {
  AddNormProblem(const AddNormCase& c, DType type) : config(c), dtype(type) {
    Twins twins(7);
    const Shape rows{c.s * c.b, c.h};
    if (c.residual) residual = twins.Random(type, rows);
    for (int i = 0; i < c.partials; ++i) partials.push_back(twins.Random(type, rows));
    if (c.bias) bias = twins.Random(type, {c.h});
    if (c.position) table = twins.Random(type, {c.s + 5, c.h});
    std::vector<int32_t> at;
    for (int64_t i = 0; i < c.s; ++i) at.push_back(static_cast<int32_t>(i + 5));
    positions = Twins::Of<int32_t>({c.s}, at);
    table_positions = positions;
    if (c.own_positions) {
      at.clear();
      for (int64_t i = 0; i < rows[0]; ++i) at.push_back(static_cast<int32_t>(i * 7 % (c.s + 5)));
      table_positions = Twins::Of<int32_t>({rows[0]}, at);
    }
    std::vector<int64_t> numbers;
    for (int64_t i = 0; i < c.b; ++i) numbers.push_back(77 + (int64_t{3} << 34) * i);
    samples = Twins::Of<int64_t>({c.b}, numbers);
    out = Twins::Output(type, rows);
    if (c.norm) {
      gain = twins.Random(type, {c.h});
      if (c.shift) shift = twins.Random(type, {c.h});
      y = Twins::Output(type, rows);
      if (c.kind == NormKind::kLayerNorm) mean = Twins::Output(DType::kF32, {rows[0]});
      rstd = Twins::Output(DType::kF32, {rows[0]});
      for (int i = 0; i < c.dys; ++i) dy.push_back(twins.Random(type, rows));
      dgain = twins.Random(DType::kF32, {c.h});
      if (c.shift) dshift = twins.Random(DType::kF32, {c.h});
    }
    dresidual_in = twins.Random(type, rows);
    dresidual = Twins::Output(type, rows);
    if (c.dropout > 0) dbranch = Twins::Output(type, rows);
    if (c.bias) dbias = twins.Random(DType::kF32, {c.h});
  }

  Dropout MakeDropout(Side side) const {
    if (config.dropout == 0) return {};
    return {.rate = MakeDropoutRate(config.dropout),
            .key = 0xFEDCBA9876543210U,
            .samples = samples[side],
            .positions = positions[side]};
  }
  void Forward(Side side) const {
    AddNormArgs a{.residual = residual[side],
                  .bias = bias[side],
                  .position_table = table[side],
                  .positions = table_positions[side],
                  .batch = config.b,
                  .dropout = MakeDropout(side),
                  .kind = config.kind,
                  .one_plus = config.one_plus,
                  .gain = gain[side],
                  .shift = shift[side],
                  .residual_out = out[side],
                  .y = y[side],
                  .mean = mean[side],
                  .rstd = rstd[side]};
    for (const Operand& partial : partials) {
      a.partials.tensor[static_cast<size_t>(a.partials.count++)] = partial[side];
    }
    a.partials.rounded = config.rounded;
    BackendOf(side).add_norm().AddNorm(StreamOf(side), a);
  }
  void Backward(Side side, GradMode mode) const {
    AddNormGradArgs a{.dresidual_in = dresidual_in[side],
                      .residual_out = out[side],
                      .mean = mean[side],
                      .rstd = rstd[side],
                      .gain = gain[side],
                      .kind = config.kind,
                      .one_plus = config.one_plus,
                      .dropout = MakeDropout(side),
                      .batch = config.b,
                      .dresidual = dresidual[side],
                      .dbranch = config.dropout > 0 ? dbranch[side] : dresidual[side],
                      .mode = mode,
                      .dgain = dgain[side],
                      .dshift = dshift[side],
                      .dbias = dbias[side]};
    for (const Operand& one : dy) {
      a.dy.tensor[static_cast<size_t>(a.dy.count++)] = one[side];
    }
    a.dy.rounded = config.rounded;
    SideScratch scratch(side, BackendOf(side).add_norm().WorkspaceBytes(a));
    a.workspace = scratch.workspace();
    BackendOf(side).add_norm().AddNormGrad(StreamOf(side), a);
    StreamOf(side).Synchronize();
  }

  AddNormCase config;
  DType dtype;
  Operand residual, bias, table, positions, table_positions, samples, gain, shift, out, y, mean,
      rstd;
  std::vector<Operand> partials, dy;
  Operand dresidual_in, dresidual, dbranch, dgain, dshift, dbias;
};

TEST_P(CudaAddNormTest, ForwardIsTheCpus) {
  for (const AddNormCase& c : kAddNormCases) {
    if (IsTooWide(c.h)) continue;
    const AddNormProblem p(c, GetParam());
    for (const Side side : kSides) p.Forward(side);
    ExpectClose(p.out, Kind::kElement, GetParam(), c.Text() + " residual");
    if (!c.norm) continue;
    ExpectClose(p.y, Kind::kSum, GetParam(), c.Text() + " y");
    ExpectClose(p.rstd, Kind::kSum, GetParam(), c.Text() + " rstd");
    if (c.kind == NormKind::kLayerNorm)
      ExpectClose(p.mean, Kind::kSum, GetParam(), c.Text() + " mean");
  }
}

// GPUs of compute capability 8.6 and 8.9 have 99 KiB of shared memory a block.
TEST_P(CudaAddNormTest, TooManyColumnsForASmallGpuAreToldWhenPlanned) {
  const auto small = LoadCudaBackend({.shared_bytes = 101376}).value();
  const auto plan = [&small](int64_t h) {
    const Operand x(GetParam(), {4, h});
    AddNormGradArgs args{.dresidual = x[Side::kGpu]};
    return small->add_norm().WorkspaceBytes(args);
  };
  EXPECT_GT(plan(8192), 0);
  try {
    plan(12288);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const DeviceError& error) {
    const std::string what = error.what();
    for (const char* part : {"cuda device 0: AddNormGrad of 12288 columns", "101376 bytes a block"})
      EXPECT_NE(what.find(part), std::string::npos) << part << " in: " << what;
  }
}

TEST_P(CudaAddNormTest, GradientsAreTheCpus) {
  for (const AddNormCase& c : kAddNormCases) {
    if (IsTooWide(c.h)) continue;
    for (const GradMode mode : {GradMode::kOverwrite, GradMode::kAdd}) {
      const AddNormProblem p(c, GetParam());
      p.Forward(Side::kCpu);
      for (const Operand* kept : {&p.out, &p.mean, &p.rstd}) {
        if ((*kept)[Side::kCpu]) kept->Share();
      }
      for (const Side side : kSides) p.Backward(side, mode);
      ExpectClose(p.dresidual, Kind::kSum, GetParam(), c.Text() + " dresidual");
      if (c.dropout > 0) ExpectClose(p.dbranch, Kind::kSum, GetParam(), c.Text() + " dbranch");
      if (c.bias) ExpectClose(p.dbias, Kind::kSum, DType::kF32, c.Text() + " dbias");
      if (c.norm) ExpectClose(p.dgain, Kind::kSum, DType::kF32, c.Text() + " dgain");
      if (c.norm && c.shift) ExpectClose(p.dshift, Kind::kSum, DType::kF32, c.Text() + " dshift");
    }
  }
}

TEST_P(CudaAddNormTest, GradientsHaveTheSameBitsInEveryRun) {
  for (const AddNormCase& c : {AddNormCase{.s = 1000, .b = 4, .dropout = 0.1},
                               AddNormCase{.s = 1200, .b = 4, .h = 2048, .dropout = 0.1}}) {
    const AddNormProblem p(c, GetParam());
    p.Forward(Side::kGpu);
    p.Backward(Side::kGpu, GradMode::kOverwrite);
    const Operand* const outputs[] = {&p.dresidual, &p.dbranch, &p.dgain, &p.dshift, &p.dbias};
    std::vector<std::vector<std::byte>> first;
    for (const Operand* x : outputs) first.push_back(x->Bytes(Side::kGpu));
    for (int run = 0; run < 5; ++run) {
      for (const Operand* x : outputs) x->Poison();
      p.Backward(Side::kGpu, GradMode::kOverwrite);
      for (size_t i = 0; i < first.size(); ++i) {
        EXPECT_EQ(outputs[i]->Bytes(Side::kGpu), first[i]) << c.Text() << " output " << i;
      }
    }
  }
}

TEST_P(CudaAddNormTest, MasksAreTheCpusBits) {
  AddNormProblem p({.s = 333,
                    .b = 3,
                    .h = 1000,
                    .residual = false,
                    .bias = false,
                    .dropout = 0.1,
                    .norm = false},
                   GetParam());
  for (const Side side : kSides) {
    BackendOf(side).vector().Fill(StreamOf(side), p.partials[0][side], 1);
    p.Forward(side);
  }
  ExpectSameBits(p.out, "ones after dropout");
}

// As a sum that another kernel has stored.
TEST_P(CudaAddNormTest, RoundedTermsHaveTheBitsOfTheirStoredSum) {
  for (const int64_t h : {768, 2304, 1001}) {
    const AddNormProblem terms({.h = h, .partials = 3, .rounded = true}, GetParam());
    AddNormProblem stored({.h = h, .partials = 3}, GetParam());
    Partials all;
    for (const Operand& partial : stored.partials)
      all.tensor[static_cast<size_t>(all.count++)] = partial[Side::kGpu];
    BackendOf(Side::kGpu).vector().SumPartials(StreamOf(Side::kGpu), all.tensor[0], all);
    stored.partials.resize(1);
    terms.Forward(Side::kGpu);
    stored.Forward(Side::kGpu);
    EXPECT_EQ(terms.out.Bytes(Side::kGpu), stored.out.Bytes(Side::kGpu));
    EXPECT_EQ(terms.y.Bytes(Side::kGpu), stored.y.Bytes(Side::kGpu));
  }
}

TEST_P(CudaAddNormTest, WorksInPlace) {
  const AddNormProblem apart({.dropout = 0.1}, GetParam());
  AddNormProblem in_place({.dropout = 0.1}, GetParam());
  apart.Forward(Side::kGpu);
  in_place.out = in_place.residual;
  in_place.Forward(Side::kGpu);
  EXPECT_EQ(in_place.out.Bytes(Side::kGpu), apart.out.Bytes(Side::kGpu));
  EXPECT_EQ(in_place.y.Bytes(Side::kGpu), apart.y.Bytes(Side::kGpu));
  apart.Backward(Side::kGpu, GradMode::kOverwrite);
  in_place.dresidual = in_place.dresidual_in;
  in_place.Backward(Side::kGpu, GradMode::kOverwrite);
  EXPECT_EQ(in_place.dresidual.Bytes(Side::kGpu), apart.dresidual.Bytes(Side::kGpu));
  EXPECT_EQ(in_place.dbranch.Bytes(Side::kGpu), apart.dbranch.Bytes(Side::kGpu));
}

}  // namespace
}  // namespace mt::kernels::cuda
