// The block of values that change from step to step. It lives in device memory (plain memory on the
// CPU), has one writer (AdvanceStepScalars, once per step after the end-of-step reduction) and is
// read through pointers by every op that needs one of them, so the host never waits for a step's
// outcome. Saved in checkpoints bit for bit. Schedules follow Megatron-LM's
// optimizer_param_scheduler: the counter is in samples and the first update runs at 0.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/core/random.h"

namespace mt::kernels {

struct StepScalars {
  int64_t consumed_samples = 0;  // of all steps, skipped ones too
  int64_t schedule_samples =
      0;  // of the steps that were not skipped: LR and weight decay are functions of it
  int64_t adam_step = 0;  // Adam's t of the last update taken
  double lr = 0;          // of the last update
  double weight_decay = 0;
  double bias_correction1 = 1;  // 1 - beta1^t
  double bias_correction2 = 1;  // 1 - beta2^t
  double loss_scale = 1;
  int64_t clean_steps = 0;
  int64_t hysteresis = 0;
  double factor =
      1;  // unscale x nominal / actual tokens x clip: AdamW multiplies gradients with it
  double grad_norm = 0;  // of the unscaled, per-token-averaged gradient, before clipping
  int64_t skip = 0;      // 1: this step's update is not taken
  int64_t skipped_steps = 0;
};

// What every rank contributes at the end of a step; summed over the mesh. Also the wire layout of
// the reduction.
struct EndOfStep {
  double sum_squares = 0;  // of the (scaled) gradient shards this rank owns
  double nonfinite = 0;    // number of NaN or Inf elements in them
  double loss = 0;         // sum of token losses
  double tokens = 0;       // sum of loss weights
  double command = 0;      // a word, written by world rank 0 only
  double fault = 0;        // number of ranks that report a fault
  double reserved[2] = {0, 0};
};
static_assert(sizeof(EndOfStep) == 8 * sizeof(double));

enum class DecayKind : uint8_t { kConstant, kLinear, kCosine };

// Constants of a run (batch_samples and nominal_tokens: of a step).
struct StepConstants {
  double max_lr = 0, min_lr = 0;
  DecayKind decay = DecayKind::kCosine;
  int64_t warmup_samples = 0, decay_samples = 0;
  double weight_decay = 0;
  double beta1 = 0.9, beta2 = 0.999;
  double clip_grad = 0;       // 0 = off
  int64_t batch_samples = 0;  // global batch of this step
  double nominal_tokens = 0;  // G * S: gradients carry the constant seed 1 / nominal_tokens
};

// Learning rate after n samples (Megatron: OptimizerParamScheduler.get_lr).
MT_HOST_DEVICE inline double LearningRate(const StepConstants& c, int64_t n) {
  if (c.warmup_samples > 0 && n <= c.warmup_samples) {
    return c.max_lr * static_cast<double>(n) / static_cast<double>(c.warmup_samples);
  }
  if (c.decay == DecayKind::kConstant) return c.max_lr;
  if (n > c.decay_samples) return c.min_lr;
  const double r = static_cast<double>(n - c.warmup_samples) /
                   static_cast<double>(c.decay_samples - c.warmup_samples);
  const double coefficient =
      c.decay == DecayKind::kLinear ? 1.0 - r : 0.5 * (std::cos(3.14159265358979323846 * r) + 1.0);
  return c.min_lr + coefficient * (c.max_lr - c.min_lr);
}

// Advances the block by one step from the summed vector. A step with a non-finite gradient or loss,
// or without any token, is skipped: consumed_samples moves, schedule_samples and Adam's t do not.
MT_HOST_DEVICE inline void AdvanceStepScalars(StepScalars* s, const EndOfStep& v,
                                              const StepConstants& c) {
  const bool finite = v.nonfinite == 0 && std::isfinite(v.sum_squares) && std::isfinite(v.loss);
  const double to_mean = v.tokens > 0 ? c.nominal_tokens / v.tokens / s->loss_scale : 0;
  s->grad_norm = std::sqrt(v.sum_squares) * to_mean;
  s->consumed_samples += c.batch_samples;
  s->skip = finite && v.tokens > 0 ? 0 : 1;
  if (s->skip != 0) {
    s->skipped_steps += 1;
    return;
  }
  // Megatron: coefficient = max / (norm + 1e-6), applied if below 1.
  double clip = 1;
  if (c.clip_grad > 0) {
    const double coefficient = c.clip_grad / (s->grad_norm + 1e-6);
    if (coefficient < 1) clip = coefficient;
  }
  s->factor = to_mean * clip;
  s->lr = LearningRate(c, s->schedule_samples);
  s->weight_decay = c.weight_decay;
  s->adam_step += 1;
  s->schedule_samples += c.batch_samples;
  s->bias_correction1 = 1.0 - std::pow(c.beta1, static_cast<double>(s->adam_step));
  s->bias_correction2 = 1.0 - std::pow(c.beta2, static_cast<double>(s->adam_step));
}

}  // namespace mt::kernels
