// Learning-rate and weight-decay schedules: their lengths against each other and the run's, their
// end values against their start values.
#include "common/spec/complete.h"
#include "common/spec/derived.h"
#include "common/spec/number.h"
#include "megatrain/v1/job.pb.h"

namespace mt::spec {
namespace {

namespace v1 = megatrain::v1;

void CheckWsd(const CheckArgs& args, int64_t warmup, int64_t decay) {
  const v1::Optimizer& optimizer = args.job->optimizer();
  FaultList& faults = *args.faults;
  if (!faults.Clean({"optimizer.wsd.over"})) return;
  if (!optimizer.wsd().has_over()) {
    faults.Add("optimizer.wsd.over",
               "required for decay wsd: the length of the final decay, such as 20%");
    return;
  }
  const int64_t over = WsdSamples(*args.job);
  if (over < 1) {
    faults.Add("optimizer.wsd.over",
               fmt::format("{} is less than one sample", optimizer.wsd().over()));
  } else if (over > decay) {
    faults.Add("optimizer.wsd.over",
               fmt::format("{} ({} samples) is longer than decay_over {} ({} samples)",
                           optimizer.wsd().over(), over, optimizer.decay_over(), decay));
  } else if (warmup > decay - over) {
    faults.Add("optimizer.wsd.over",
               fmt::format("{} ({} samples) begins before warmup {} ({} samples) ends: decay_over "
                           "{} has {} samples; at most {} samples",
                           optimizer.wsd().over(), over, optimizer.warmup(), warmup,
                           optimizer.decay_over(), decay, decay - warmup));
  }
}

// Compares lengths; the length of the run is known to be sound.
void CheckSchedule(const CheckArgs& args) {
  const v1::Optimizer& optimizer = args.job->optimizer();
  FaultList& faults = *args.faults;
  if (!faults.Clean({"optimizer.warmup", "optimizer.decay_over", "optimizer.decay"})) return;
  const int64_t warmup = WarmupSamples(*args.job);
  const int64_t decay = DecaySamples(*args.job);
  if (decay < 1) {
    faults.Add("optimizer.decay_over",
               fmt::format("{} is less than one sample", optimizer.decay_over()));
  } else if (optimizer.decay() != v1::Optimizer::DECAY_CONSTANT && warmup >= decay) {
    faults.Add("optimizer.warmup",
               fmt::format("{} ({} samples) must end before decay_over {} ({} samples)",
                           optimizer.warmup(), warmup, optimizer.decay_over(), decay));
  } else if (optimizer.decay() == v1::Optimizer::DECAY_WSD) {
    CheckWsd(args, warmup, decay);
  }
  if (optimizer.warmup_init() > 0 && warmup == 0 && faults.Clean({"optimizer.warmup_init"})) {
    faults.Add("optimizer.warmup_init",
               fmt::format("{} is where a warmup begins, but warmup is {}; give a warmup",
                           optimizer.warmup_init(), optimizer.warmup()));
  }
}

void CheckLearningRates(const CheckArgs& args) {
  const v1::Optimizer& optimizer = args.job->optimizer();
  FaultList& faults = *args.faults;
  if (!optimizer.has_lr() || !faults.Clean({"optimizer.lr", "optimizer.min_lr"})) return;
  if (optimizer.min_lr() > optimizer.lr()) {
    faults.Add("optimizer.min_lr",
               fmt::format("{} is above lr {}", optimizer.min_lr(), optimizer.lr()));
  }
  if (faults.Clean({"optimizer.warmup_init"}) && optimizer.warmup_init() > optimizer.lr()) {
    faults.Add("optimizer.warmup_init",
               fmt::format("{} is above lr {}", optimizer.warmup_init(), optimizer.lr()));
  }
}

void CompleteWeightDecay(const CheckArgs& args) {
  v1::Optimizer& optimizer = *args.job->mutable_optimizer();
  FaultList& faults = *args.faults;
  if (!faults.Clean({"optimizer.weight_decay", "optimizer.weight_decay_end",
                     "optimizer.weight_decay_style"})) {
    return;
  }
  if (!optimizer.has_weight_decay_end()) optimizer.set_weight_decay_end(optimizer.weight_decay());
  const bool constant =
      optimizer.weight_decay_style() == v1::Optimizer::WEIGHT_DECAY_STYLE_CONSTANT;
  if (constant && optimizer.weight_decay_end() != optimizer.weight_decay()) {
    faults.Add("optimizer.weight_decay_end",
               fmt::format("{} differs from weight_decay {}, but weight_decay_style is constant; "
                           "use linear or cosine, or leave the end to auto",
                           optimizer.weight_decay_end(), optimizer.weight_decay()));
  }
}

}  // namespace

void CompleteOptimizer(const CheckArgs& args, bool length_is_sound) {
  const v1::Optimizer& optimizer = args.job->optimizer();
  if (length_is_sound) CheckSchedule(args);
  CheckLearningRates(args);
  CompleteWeightDecay(args);
  if (optimizer.decay() != v1::Optimizer::DECAY_WSD && optimizer.wsd().has_over() &&
      args.faults->Clean({"optimizer.decay", "optimizer.wsd.over"})) {
    args.faults->Add("optimizer.wsd.over", "is for decay wsd");
  }
}

}  // namespace mt::spec
