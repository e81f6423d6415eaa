// Dependencies between a model's variants: rotary positions and their scaling, sliding window.
#include <cmath>

#include "common/spec/complete.h"
#include "common/spec/derived.h"
#include "megatrain/v1/job.pb.h"

namespace mt::spec {
namespace {

namespace v1 = megatrain::v1;
using Scaling = v1::Model::Rope::Scaling;

// Defaults of Llama 3.1 (Dubey et al. 2024).
constexpr double kLowFreqFactor = 1;
constexpr double kHighFreqFactor = 4;
constexpr int64_t kOriginalPositions = 8192;

constexpr std::string_view kScaling = "model.rope.scaling";

void RefuseLlama3Fields(const Scaling& scaling, FaultList* faults) {
  const auto refuse = [faults](std::string_view name) {
    faults->Add(fmt::format("{}.{}", kScaling, name), "is for type llama3");
  };
  if (scaling.has_low_freq_factor()) refuse("low_freq_factor");
  if (scaling.has_high_freq_factor()) refuse("high_freq_factor");
  if (scaling.has_original_positions()) refuse("original_positions");
}

void CompleteScaling(const CheckArgs& args) {
  Scaling& scaling = *args.job->mutable_model()->mutable_rope()->mutable_scaling();
  FaultList& faults = *args.faults;
  if (!faults.Clean({"model.rope.scaling.type", "model.rope.scaling.factor"})) return;
  if (scaling.type() == Scaling::TYPE_NONE) {
    if (scaling.has_factor())
      faults.Add("model.rope.scaling.factor", "is for type linear or llama3, but type is none");
    return RefuseLlama3Fields(scaling, &faults);
  }
  if (!scaling.has_factor()) {
    faults.Add("model.rope.scaling.factor",
               "required: how many times longer positions become, such as 8");
  }
  if (scaling.type() == Scaling::TYPE_LINEAR) return RefuseLlama3Fields(scaling, &faults);
  if (!scaling.has_low_freq_factor()) scaling.set_low_freq_factor(kLowFreqFactor);
  if (!scaling.has_high_freq_factor()) scaling.set_high_freq_factor(kHighFreqFactor);
  if (!scaling.has_original_positions()) scaling.set_original_positions(kOriginalPositions);
  if (scaling.low_freq_factor() >= scaling.high_freq_factor()) {
    faults.Add("model.rope.scaling.low_freq_factor",
               fmt::format("{} must be below high_freq_factor {}", scaling.low_freq_factor(),
                           scaling.high_freq_factor()));
  }
}

void CheckRotation(const CheckArgs& args) {
  const v1::Model& model = args.job->model();
  if (!model.has_head_dim() || !args.faults->Clean({"model.head_dim", "model.rope.percent"}))
    return;
  if (model.head_dim() % 2 != 0) {
    args.faults->Add("model.head_dim",
                     fmt::format("{} is odd, but position rope turns pairs of channels; nearest: "
                                 "{}",
                                 model.head_dim(), NearestMultiples(model.head_dim(), 2)));
  } else if (static_cast<double>(model.head_dim()) * model.rope().percent() < 2) {
    args.faults->Add("model.rope.percent",
                     fmt::format("{} of head_dim {} is less than one pair of channels; at least {}",
                                 model.rope().percent(), model.head_dim(),
                                 2 / static_cast<double>(model.head_dim())));
  }
}

void CheckWindow(const CheckArgs& args) {
  const v1::Model& model = args.job->model();
  if (!model.has_window() || !model.has_max_positions() ||
      !args.faults->Clean({"model.window", "model.max_positions", "model.seq_length"})) {
    return;
  }
  if (model.window() > model.max_positions()) {
    args.faults->Add("model.window",
                     fmt::format("{} is more than max_positions {}: every token would see the "
                                 "whole sequence; at most {}, or none",
                                 model.window(), model.max_positions(), model.max_positions()));
  }
}

}  // namespace

void CompleteVariants(const CheckArgs& args) {
  v1::Model& model = *args.job->mutable_model();
  if (!args.faults->Clean({"model.position"})) return;
  if (model.position() == v1::Model::POSITION_ROPE) {
    CompleteScaling(args);
    CheckRotation(args);
  } else {
    constexpr std::string_view kWhy = "is for model.position rope only";
    RefuseOtherThanDefault(model.rope(), "model.rope", {"base", "percent"}, kWhy, args.faults);
    if (model.rope().scaling().type() == Scaling::TYPE_NONE) {
      CompleteScaling(args);
    } else {
      args.faults->Add("model.rope.scaling.type", std::string(kWhy));
    }
  }
  CheckWindow(args);
}

}  // namespace mt::spec
