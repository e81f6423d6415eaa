// Loss on the validation split, over all replicas, each token counted once. During training the
// samples follow Megatron's rule: evaluation j reads samples [j n, (j + 1) n) of a validation index
// that is long enough for the whole run, with n = eval.iters * global batch. With fixed windows
// each reads the samples [0, n) of an index of n. So the samples of an evaluation do not depend on
// restarts.
#pragma once

#include <cstdint>
#include <memory>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "worker/engine/engine.h"
#include "worker/train/observer.h"
#include "worker/train/records.h"
#include "worker/train/run_data.h"
#include "worker/train/samples/prompt_samples.h"

namespace mt::train {

// What is evaluated after a step.
enum class EvalScope : uint8_t {
  kPart,      // what evaluations during training read
  kLastPart,  // the same of the last step, whose kWhole follows
  kWhole,     // the whole split, after the last step
};

// One thread. Collective: all ranks evaluate at the same steps. Everything that Args points to must
// outlive the object.
class Evaluator {
 public:
  struct Args {
    engine::Engine* engine = nullptr;
    const RunData* data = nullptr;
    const base::Clock* clock = nullptr;
    TrainObserver* observer = nullptr;  // gets OnProgress for every microbatch
    int64_t every_iters = 0;            // 0: never
    int64_t samples_per_eval = 0;       // 0: the whole split each time
    bool fixed_windows = false;         // the same samples each time
    int64_t micro_batch_size = 0;
    int loader_threads = 1;
    int prefetch = 2;
    PromptSamples* prompts = nullptr;  // nullptr: none
  };
  explicit Evaluator(const Args& args) : args_(args) {}

  // Changes the cadence; Args::data must hold the samples for it.
  void SetCadence(int64_t every_iters, int64_t samples_per_eval, bool fixed_windows) {
    args_.every_iters = every_iters;
    args_.samples_per_eval = samples_per_eval;
    args_.fixed_windows = fixed_windows;
  }
  bool enabled() const { return args_.every_iters > 0; }
  // Evaluations during training read a part of the split.
  bool has_windows() const { return enabled() && args_.samples_per_eval > 0; }
  // True if an evaluation is due after this step. The one after the last step is the final one,
  // which the end of the run asks for.
  bool DueAfter(int64_t step, int64_t total_steps) const;
  // Evaluates after `step`, the last one done. Blocks. The first replica writes the samples, once
  // for each step (not with kLastPart), and has them in its record; the others wait. kUnavailable
  // where another rank could not read its data.
  StatusOr<EvalRecord> Run(int64_t step, EvalScope scope);

 private:
  // Sums over all of this replica's microbatches. An error of the loader is kept in *read and empty
  // microbatches take the place of the rest, so that peers are not left waiting. The status is the
  // groups'.
  Status SumSamples(data::Loader* loader, int64_t step, Status* read);

  Args args_;
};

}  // namespace mt::train
