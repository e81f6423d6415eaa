// Loss on the validation split, over all replicas, each token counted once. During training the
// samples follow Megatron's rule: evaluation number j reads samples [j n, (j + 1) n) of a
// validation index that is long enough for the whole run, n = eval.iters * global batch; so which
// samples an evaluation reads does not depend on restarts.
#pragma once

#include <cstdint>
#include <memory>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "worker/engine/engine.h"
#include "worker/train/observer.h"
#include "worker/train/records.h"
#include "worker/train/run_data.h"

namespace mt::train {

// One thread. Collective: all ranks evaluate at the same steps. What Args points to must outlive
// it.
class Evaluator {
 public:
  struct Args {
    engine::Engine* engine = nullptr;
    const RunData* data = nullptr;
    const base::Clock* clock = nullptr;
    TrainObserver* observer = nullptr;  // told of progress
    int64_t every_iters = 0;            // 0: never
    int64_t samples_per_eval = 0;       // 0: the whole split each time
    int64_t micro_batch_size = 0;
    int loader_threads = 1;
    int prefetch = 2;
  };
  explicit Evaluator(const Args& args) : args_(args) {}

  // Another cadence from here on; args.data holds samples for it already.
  void SetCadence(int64_t every_iters, int64_t samples_per_eval) {
    args_.every_iters = every_iters;
    args_.samples_per_eval = samples_per_eval;
  }
  bool enabled() const { return args_.every_iters > 0; }
  // Whether one is due after this step of a run of total_steps (the last step's is Final's).
  bool DueAfter(int64_t step, int64_t total_steps) const;
  // Of the step just done; over the whole split if `final`.
  StatusOr<EvalRecord> Run(int64_t step, bool final);

 private:
  // Sums over this replica's microbatches, all of them whatever happens to the loader: its own
  // error is kept in *read. The status is the groups'.
  Status SumSamples(data::Loader* loader, int64_t step, Status* read);

  Args args_;
};

}  // namespace mt::train
