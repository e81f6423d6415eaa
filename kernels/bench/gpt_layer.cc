// Calls the ops one by one with fixed random operands, each timed on its own, so that the shares of
// a step can be compared. AddNorm adds the biases of the attention projection and of fc2, as in the
// engine.
#include "kernels/bench/gpt_layer.h"

#include <algorithm>
#include <cmath>

#include "kernels/bench/timing.h"

namespace mt::kernels::bench {
namespace {

// Runs `call` and adds its time to (*phases)[name].
template <class Call>
void Timed(Phases* phases, const std::string& name, const Call& call) {
  const double start = Now();
  call();
  (*phases)[name] += Now() - start;
}

constexpr char kGemms[] = "linear";
constexpr char kAttention[] = "attention";
constexpr char kNorm[] = "add_norm";
constexpr char kAct[] = "act";
constexpr char kLoss[] = "loss";
constexpr char kUpdate[] = "update";

}  // namespace

GptLayer::GptLayer(Backend* backend, const GptShape& shape)
    : backend_(backend),
      shape_(shape),
      stream_(backend->device().CreateStream(StreamPriority::kLow)) {
  const int64_t t = shape.s * shape.b, h = shape.h;
  for (Tensor* x : {&x_, &out1_, &y1_, &o_, &proj_, &out2_, &y2_, &fc2_, &dx_, &dbranch_, &do_}) {
    *x = Make({t, h});
  }
  for (Tensor* x : {&qkv_, &dqkv_}) *x = Make({t, 3 * h});
  for (Tensor* x : {&pre_, &act_, &dact_, &dpre_}) *x = Make({t, 4 * h});
  for (Tensor* x : {&mean_, &rstd_}) *x = Make({t});
  for (Tensor* x : {&gain_, &shift_, &dgain_, &dshift_, &dbias_, &bproj_, &bfc2_}) *x = Make({h});
  for (Tensor* x : {&bqkv_, &dbqkv_}) *x = Make({3 * h});
  for (Tensor* x : {&bfc1_, &dbfc1_}) *x = Make({4 * h});
  for (Tensor* x : {&wqkv_, &dwqkv_}) *x = Make({3 * h, h});
  for (Tensor* x : {&wproj_, &dwproj_}) *x = Make({h, h});
  for (Tensor* x : {&wfc1_, &dwfc1_}) *x = Make({4 * h, h});
  for (Tensor* x : {&wfc2_, &dwfc2_}) *x = Make({h, 4 * h});
  for (Tensor* x : {&table_, &dtable_, &m_, &v_}) *x = Make({shape.v, h});
  logits_ = Make({t, shape.v});
  lse_ = Make({shape.b, shape.a, shape.s});
  stats_ = Make({1, t, 3});
  sums_ = Make({2}, DType::kF64);
  labels_ = Make({t}, DType::kI32);
  weight_ = Make({t});
  samples_ = Make({shape.b}, DType::kI64);
  positions_ = Make({shape.s}, DType::kI32);
  for (int64_t i = 0; i < shape.s; ++i) positions_.Data<int32_t>()[i] = static_cast<int32_t>(i);
  backend_->vector().Fill(*stream_, weight_, 1);
  backend_->vector().Fill(*stream_, v_, 1e-4);
  scratch_ = Scratch(int64_t{64} << 20);
}

// Random contents, because denormals and zeros would make some kernels faster or slower.
Tensor GptLayer::Make(Shape shape, DType dtype) {
  buffers_.push_back(
      backend_->device().Allocate(shape.NumElements() * SizeOf(dtype), MemoryKind::kDevice));
  const Tensor tensor{buffers_.back()->data(), dtype, shape};
  if (dtype == DType::kF32) {
    backend_->random().FillNormal(*stream_, {.key = buffers_.size(), .std = 0.05, .out = tensor});
  }
  return tensor;
}

Workspace GptLayer::Scratch(int64_t bytes) {
  buffers_.push_back(backend_->device().Allocate(bytes, MemoryKind::kDevice));
  return {buffers_.back()->data(), bytes};
}

Dropout GptLayer::MakeDropout() const {
  return {.rate = MakeDropoutRate(shape_.dropout),
          .key = 7,
          .samples = samples_,
          .positions = positions_};
}

void GptLayer::Norm(const Tensor& branch, const Tensor& bias, const Tensor& residual,
                    const Tensor& out, const Tensor& y) {
  backend_->add_norm().AddNorm(*stream_, {.residual = residual,
                                          .partials = Partials(branch),
                                          .bias = bias,
                                          .batch = shape_.b,
                                          .dropout = MakeDropout(),
                                          .gain = gain_,
                                          .shift = shift_,
                                          .residual_out = out,
                                          .y = y,
                                          .mean = mean_,
                                          .rstd = rstd_});
}

void GptLayer::NormGrad(const Tensor& dy, const Tensor& out, const Tensor& dresidual) {
  backend_->add_norm().AddNormGrad(*stream_, {.dy = Partials(dy),
                                              .dresidual_in = dresidual,
                                              .residual_out = out,
                                              .mean = mean_,
                                              .rstd = rstd_,
                                              .gain = gain_,
                                              .dropout = MakeDropout(),
                                              .batch = shape_.b,
                                              .dresidual = dresidual,
                                              .dbranch = shape_.dropout > 0 ? dbranch_ : dresidual,
                                              .dgain = dgain_,
                                              .dshift = dshift_,
                                              .dbias = dbias_,
                                              .workspace = scratch_});
}

void GptLayer::Forward(Phases* phases) {
  const LinearOps& linear = backend_->linear();
  const int64_t h = shape_.h, d = h / shape_.a;
  const auto head = [&](const Tensor& x, int64_t first, int64_t width) {
    return HeadView{x.Data<float>() + first, shape_.b * width, width, d};
  };
  Timed(phases, kNorm, [&] { Norm(fc2_, bfc2_, x_, out1_, y1_); });
  Timed(phases, kGemms,
        [&] { linear.Forward(*stream_, {.x = y1_, .w = wqkv_, .bias = bqkv_, .y = qkv_}); });
  Timed(phases, kAttention, [&] {
    backend_->attention().Forward(*stream_,
                                  {.shape = {.s = shape_.s,
                                             .b = shape_.b,
                                             .a = shape_.a,
                                             .g = shape_.a,
                                             .d = d,
                                             .scale = 1 / std::sqrt(static_cast<double>(d))},
                                   .q = head(qkv_, 0, 3 * h),
                                   .k = head(qkv_, h, 3 * h),
                                   .v = head(qkv_, 2 * h, 3 * h),
                                   .o = head(o_, 0, h),
                                   .lse = lse_,
                                   .workspace = scratch_});
  });
  Timed(phases, kGemms, [&] { linear.Forward(*stream_, {.x = o_, .w = wproj_, .y = proj_}); });
  Timed(phases, kNorm, [&] { Norm(proj_, bproj_, out1_, out2_, y2_); });
  // ForwardAct is Forward and Act; they are called separately here to time each.
  Timed(phases, kGemms,
        [&] { linear.Forward(*stream_, {.x = y2_, .w = wfc1_, .bias = bfc1_, .y = pre_}); });
  Timed(phases, kAct, [&] { backend_->act().Act(*stream_, {.pre = pre_, .y = act_}); });
  Timed(phases, kGemms, [&] { linear.Forward(*stream_, {.x = act_, .w = wfc2_, .y = fc2_}); });
}

void GptLayer::Backward(Phases* phases) {
  const LinearOps& linear = backend_->linear();
  const int64_t h = shape_.h, d = h / shape_.a;
  const auto head = [&](const Tensor& x, int64_t first, int64_t width) {
    return HeadView{x.Data<float>() + first, shape_.b * width, width, d};
  };
  Timed(phases, kGemms, [&] {
    linear.WeightGrad(*stream_, {.dy = dx_, .x = act_, .dw = dwfc2_});
    linear.InputGrad(*stream_, {.dy = dx_, .w = wfc2_, .dx = dact_});
  });
  Timed(phases, kAct,
        [&] { backend_->act().ActGrad(*stream_, {.dy = dact_, .pre = pre_, .dpre = dpre_}); });
  Timed(phases, kGemms, [&] {
    linear.WeightGrad(*stream_, {.dy = dpre_, .x = y2_, .dw = dwfc1_, .dbias = dbfc1_});
    linear.InputGrad(*stream_, {.dy = dpre_, .w = wfc1_, .dx = do_});
  });
  Timed(phases, kNorm, [&] { NormGrad(do_, out2_, dx_); });
  Timed(phases, kGemms, [&] {
    linear.WeightGrad(*stream_, {.dy = dx_, .x = o_, .dw = dwproj_});
    linear.InputGrad(*stream_, {.dy = dx_, .w = wproj_, .dx = do_});
  });
  Timed(phases, kAttention, [&] {
    backend_->attention().Grad(*stream_, {.shape = {.s = shape_.s,
                                                    .b = shape_.b,
                                                    .a = shape_.a,
                                                    .g = shape_.a,
                                                    .d = d,
                                                    .scale = 1 / std::sqrt(static_cast<double>(d))},
                                          .q = head(qkv_, 0, 3 * h),
                                          .k = head(qkv_, h, 3 * h),
                                          .v = head(qkv_, 2 * h, 3 * h),
                                          .o = head(o_, 0, h),
                                          .lse = lse_,
                                          .do_ = head(do_, 0, h),
                                          .dq = head(dqkv_, 0, 3 * h),
                                          .dk = head(dqkv_, h, 3 * h),
                                          .dv = head(dqkv_, 2 * h, 3 * h),
                                          .workspace = scratch_});
  });
  Timed(phases, kGemms, [&] {
    linear.WeightGrad(*stream_, {.dy = dqkv_, .x = y1_, .dw = dwqkv_, .dbias = dbqkv_});
    linear.InputGrad(*stream_, {.dy = dqkv_, .w = wqkv_, .dx = do_});
  });
  Timed(phases, kNorm, [&] { NormGrad(do_, out1_, dx_); });
}

// AdamW over a flat shard: of the table, or of as many of its elements as the layer has parameters.
void GptLayer::Update(const Tensor& weights, Phases* phases) {
  const int64_t n = weights.NumElements();
  const auto flat = [n](const Tensor& x) { return Tensor{x.data, x.dtype, {n}}; };
  scalars_.lr = 0;  // the weights do not change, the work is the same
  Timed(phases, kUpdate, [&] {
    backend_->update().SquareSum(*stream_, {.gradient = flat(dtable_), .out = sums_});
    backend_->update().AdamW(*stream_, {.gradient = flat(dtable_),
                                        .master = flat(table_),
                                        .m = flat(m_),
                                        .v = flat(v_),
                                        .decay = true,
                                        .scalars = &scalars_});
  });
}

Phases GptLayer::RunLayer() {
  Phases phases;
  // The input is fixed: a gradient fed back many times would grow, or fade to denormals.
  backend_->random().FillNormal(*stream_, {.key = 1, .std = 0.05, .out = dx_});
  backend_->random().FillNormal(*stream_, {.key = 2, .std = 0.05, .out = fc2_});
  Forward(&phases);
  Backward(&phases);
  Update({table_.data, table_.dtype, {std::min(layer_parameters(), table_.NumElements())}},
         &phases);
  return phases;
}

Phases GptLayer::RunHead() {
  Phases phases;
  const LinearOps& linear = backend_->linear();
  Timed(&phases, kNorm, [&] { Norm(proj_, bproj_, out1_, out2_, y2_); });
  Timed(&phases, kGemms, [&] { linear.Forward(*stream_, {.x = y2_, .w = table_, .y = logits_}); });
  Timed(&phases, kLoss, [&] {
    backend_->loss().StatsFinish(*stream_, {.logits = logits_,
                                            .labels = labels_,
                                            .real_columns = shape_.v - 47,
                                            .stats = stats_,
                                            .weight = weight_,
                                            .seed = 1e-3,
                                            .sums = sums_});
  });
  Timed(&phases, kGemms, [&] {
    linear.InputGrad(*stream_, {.dy = logits_, .w = table_, .dx = do_});
    linear.WeightGrad(*stream_, {.dy = logits_, .x = y2_, .dw = dtable_});
  });
  Timed(&phases, kNorm, [&] { NormGrad(do_, out2_, dx_); });
  Update(table_, &phases);
  return phases;
}

}  // namespace mt::kernels::bench
