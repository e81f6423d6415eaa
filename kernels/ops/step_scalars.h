// The block of scalars that change from step to step: learning rate, loss scale, Adam's bias
// corrections, counters. It lives in device memory (plain memory on the CPU), has one writer
// (AdvanceStepScalars, once per step after the end-of-step all-reduce) and is read through pointers
// by every op that needs one of its values, so the host never waits for a step's outcome.
// Checkpoints save it bit for bit. Schedules follow Megatron-LM's OptimizerParamScheduler: the
// counter is in samples, and the first update runs at 0
// (docs/design/megatron-compat.md#learning-rate-and-weight-decay).
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/core/random.h"

namespace mt::kernels {

// The state of the schedules after a step. All fields have 8 bytes and no padding lies between
// them.
struct StepScalars {
  int64_t consumed_samples = 0;  // samples of all steps, including skipped ones
  // Samples of the steps that were not skipped; learning rate and weight decay are functions of it.
  int64_t schedule_samples = 0;
  int64_t adam_step = 0;  // Adam's t: number of updates taken
  double lr = 0;          // that the last update used
  double weight_decay = 0;
  double bias_correction1 = 1;  // 1 - beta1^t
  double bias_correction2 = 1;  // 1 - beta2^t
  double loss_scale = 1;        // of the next step's backward
  int64_t clean_steps = 0;      // consecutive steps without overflow, for a dynamic scale
  int64_t hysteresis = 0;       // overflows left until the scale is halved
  // Factor of the gradients in the update: 1 / loss scale * nominal tokens / actual tokens *
  // clipping coefficient.
  double factor = 1;
  double grad_norm = 0;  // 2-norm of the unscaled, per-token-averaged gradient, before clipping
  int64_t skip = 0;      // 1: the update of this step is not applied
  int64_t skipped_steps = 0;
};

// What ops add up over a step on one rank, and what AdvanceStepScalars reads once it is summed over
// all ranks. It lies at the head of the engine's end-of-step vector, which is one all-reduce.
struct EndOfStep {
  double sum_squares = 0;  // of the (loss-scaled) gradient shards that this rank owns
  double nonfinite = 0;    // number of NaN or infinite elements in them
  double loss = 0;         // sum of weight * loss, in nats
  double tokens = 0;       // sum of loss weights
};
static_assert(sizeof(EndOfStep) == 4 * sizeof(double));

// Shape of the learning rate's decay after the warmup (Megatron: --lr-decay-style).
enum class DecayKind : uint8_t { kConstant, kLinear, kCosine, kInverseSqrt, kWsd };
// Shape of the decay at the end of kWsd, "warmup-stable-decay" (Megatron: --lr-wsd-decay-style).
enum class WsdStyle : uint8_t { kExponential, kLinear, kCosine, kMinusSqrt };
enum class WeightDecayKind : uint8_t { kConstant, kLinear, kCosine };
// kDynamic adapts the scale to overflows; see UpdateLossScale.
enum class LossScaleKind : uint8_t { kStatic, kDynamic };

// Loss scaling (Micikevicius et al. 2018, §3.2), which keeps gradients within fp16's range: dlogits
// are multiplied by the scale, and the optimizer's update divides by it.
struct LossScaleConstants {
  LossScaleKind kind = LossScaleKind::kStatic;
  double initial = 1;  // kStatic: the scale of the whole run; 1: no scaling
  double min = 1;
  int64_t window = 1000;   // consecutive clean steps before the scale doubles
  int64_t hysteresis = 2;  // the overflow, counted from the last doubling, that first halves it
};

// Constants of a run; batch_samples and nominal_tokens are constants of a step.
struct StepConstants {
  double max_lr = 0, min_lr = 0;
  double warmup_init = 0;  // learning rate at sample 0 of the warmup
  DecayKind decay = DecayKind::kCosine;
  int64_t warmup_samples = 0, decay_samples = 0;
  WsdStyle wsd_style = WsdStyle::kExponential;
  int64_t wsd_samples = 0;      // kWsd: length of the final decay
  double weight_decay = 0;      // initial value, or the value for kConstant
  double weight_decay_end = 0;  // final value; unused for kConstant
  WeightDecayKind weight_decay_kind = WeightDecayKind::kConstant;
  int64_t weight_decay_samples = 0;  // samples after which weight_decay_end holds: those of the run
  double beta1 = 0.9, beta2 = 0.999;
  double clip_grad = 0;       // largest 2-norm of the gradient; 0: no clipping
  int64_t batch_samples = 0;  // global batch size of this step
  // Global batch size * sequence length: gradients carry the factor 1 / nominal_tokens.
  double nominal_tokens = 0;
  LossScaleConstants loss_scale;
};

inline constexpr double kPi = 3.14159265358979323846;

// Returns the factor of max_lr - min_lr in the final decay of kWsd, of which the fraction `x` has
// passed.
MT_HOST_DEVICE inline double WsdCoefficient(WsdStyle style, double x) {
  switch (style) {
    case WsdStyle::kExponential:
      return 2.0 * std::pow(0.5, x) - 1.0;
    case WsdStyle::kLinear:
      return 1.0 - x;
    case WsdStyle::kCosine:
      return 0.5 * (std::cos(kPi * x) + 1.0);
    case WsdStyle::kMinusSqrt:
      return 1.0 - std::sqrt(x);
  }
  return 0;
}

// Returns the factor of max_lr - min_lr after n samples, warmup_samples < n <= decay_samples.
MT_HOST_DEVICE inline double DecayCoefficient(const StepConstants& c, int64_t n) {
  if (c.decay == DecayKind::kWsd) {
    const int64_t start = c.decay_samples - c.wsd_samples;
    if (n <= start) return 1;
    return WsdCoefficient(c.wsd_style,
                          static_cast<double>(n - start) / static_cast<double>(c.wsd_samples));
  }
  const double r = static_cast<double>(n - c.warmup_samples) /
                   static_cast<double>(c.decay_samples - c.warmup_samples);
  return c.decay == DecayKind::kLinear ? 1.0 - r : 0.5 * (std::cos(kPi * r) + 1.0);
}

// Returns the learning rate after n samples (Megatron: OptimizerParamScheduler.get_lr).
MT_HOST_DEVICE inline double LearningRate(const StepConstants& c, int64_t n) {
  if (c.warmup_samples > 0 && n <= c.warmup_samples) {
    return c.warmup_init + (c.max_lr - c.warmup_init) * static_cast<double>(n) /
                               static_cast<double>(c.warmup_samples);
  }
  if (c.decay == DecayKind::kConstant) return c.max_lr;
  if (n > c.decay_samples) return c.min_lr;
  if (c.decay == DecayKind::kInverseSqrt) {
    const double warmup = c.warmup_samples > 1 ? static_cast<double>(c.warmup_samples) : 1.0;
    const double lr =
        c.max_lr * std::sqrt(warmup) / std::sqrt(n > 1 ? static_cast<double>(n) : 1.0);
    return lr > c.min_lr ? lr : c.min_lr;
  }
  return c.min_lr + DecayCoefficient(c, n) * (c.max_lr - c.min_lr);
}

// Returns the weight decay after n samples (Megatron: OptimizerParamScheduler.get_wd).
MT_HOST_DEVICE inline double WeightDecay(const StepConstants& c, int64_t n) {
  if (c.weight_decay_kind == WeightDecayKind::kConstant) return c.weight_decay;
  if (n > c.weight_decay_samples) return c.weight_decay_end;
  const double r = static_cast<double>(n) / static_cast<double>(c.weight_decay_samples);
  const double coefficient =
      c.weight_decay_kind == WeightDecayKind::kLinear ? r : 0.5 * (std::cos(kPi * (1.0 - r)) + 1.0);
  return c.weight_decay + coefficient * (c.weight_decay_end - c.weight_decay);
}

// Returns the block of a run before its first step.
MT_HOST_DEVICE inline StepScalars InitialStepScalars(const StepConstants& c) {
  StepScalars s;
  s.loss_scale = c.loss_scale.initial;
  if (c.loss_scale.kind == LossScaleKind::kDynamic) s.hysteresis = c.loss_scale.hysteresis;
  return s;
}

// Updates the loss scale for the next step (Megatron: DynamicGradScaler.update). Only a doubling
// refills the hysteresis, so once it is used up every further overflow halves the scale.
MT_HOST_DEVICE inline void UpdateLossScale(StepScalars* s, bool overflow,
                                           const LossScaleConstants& c) {
  if (c.kind == LossScaleKind::kStatic) return;
  if (overflow) {
    s->clean_steps = 0;
    s->hysteresis -= 1;
    if (s->hysteresis <= 0) {
      const double halved = 0.5 * s->loss_scale;
      s->loss_scale = halved > c.min ? halved : c.min;
    }
    return;
  }
  s->clean_steps += 1;
  if (s->clean_steps == c.window) {
    s->clean_steps = 0;
    s->hysteresis = c.hysteresis;
    s->loss_scale *= 2;
  }
}

// Advances the block by one step from the summed vector. A step with a non-finite gradient or loss,
// or without any token, is skipped: consumed_samples advances, but schedule_samples and Adam's t do
// not, and so neither does the learning rate. The dynamic loss scale responds to non-finite
// gradients only. The gradients summed in `v` carry the scale that is in the block before this
// call.
MT_HOST_DEVICE inline void AdvanceStepScalars(StepScalars* s, const EndOfStep& v,
                                              const StepConstants& c) {
  const bool overflow = v.nonfinite != 0 || !std::isfinite(v.sum_squares);
  const bool finite = !overflow && std::isfinite(v.loss);
  const double to_mean = v.tokens > 0 ? c.nominal_tokens / v.tokens / s->loss_scale : 0;
  s->grad_norm = std::sqrt(v.sum_squares) * to_mean;
  s->consumed_samples += c.batch_samples;
  s->skip = finite && v.tokens > 0 ? 0 : 1;
  if (overflow || s->skip == 0) UpdateLossScale(s, overflow, c.loss_scale);
  if (s->skip != 0) {
    s->skipped_steps += 1;
    return;
  }
  // Megatron's clip_grad_by_total_norm: coefficient = max_norm / (norm + 1e-6), applied if it is
  // below 1.
  double clip = 1;
  if (c.clip_grad > 0) {
    const double coefficient = c.clip_grad / (s->grad_norm + 1e-6);
    if (coefficient < 1) clip = coefficient;
  }
  s->factor = to_mean * clip;
  s->lr = LearningRate(c, s->schedule_samples);
  s->weight_decay = WeightDecay(c, s->schedule_samples);
  s->adam_step += 1;
  s->schedule_samples += c.batch_samples;
  s->bias_correction1 = 1.0 - std::pow(c.beta1, static_cast<double>(s->adam_step));
  s->bias_correction2 = 1.0 - std::pow(c.beta2, static_cast<double>(s->adam_step));
}

}  // namespace mt::kernels
