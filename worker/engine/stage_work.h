// A pipeline stage's chunks as the executor drives them. For each action it fetches the microbatch,
// waits for gathered weights, runs the model, eagerly or as a CUDA graph, and reports the errors of
// the groups. One object serves training and evaluation passes.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "common/base/status.h"
#include "worker/data/microbatch.h"
#include "worker/engine/action_recordings.h"
#include "worker/engine/phase_clock.h"
#include "worker/model/gpt_model.h"
#include "worker/parallel/gradient_sync.h"
#include "worker/parallel/pipeline/chunk_work.h"
#include "worker/parallel/schedule/schedule.h"

namespace mt::engine {

// The largest number of microbatches that are between their first and their last action on this
// stage at once. So many places are kept; microbatch i lies in place i modulo that number.
int MicrobatchWindow(const parallel::Schedule& schedule, int stage);

// One thread.
class StageWork final : public parallel::ChunkWork {
 public:
  struct Args {
    model::GptModel* model = nullptr;
    parallel::TensorParallel* tensor = nullptr;
    parallel::GradientSync* sync = nullptr;
    kernels::Stream* stream = nullptr;
    PhaseClock* phases = nullptr;
    ActionRecordings* recordings = nullptr;
    int window = 1;  // the model's max_microbatches
  };
  // Everything that Args points to must outlive the object.
  explicit StageWork(const Args& args) : args_(args) {}

  // One pass through the pipeline. `next` is called for the microbatches in their order, for each
  // when its first action comes. `step.mode` and `step.last` are set by StageWork.
  struct PassArgs {
    int microbatches = 0;
    std::function<data::Microbatch()> next;
    double* label_bytes = nullptr;  // each microbatch's are added to it; nullptr: they do not count
    bool training = true;
    model::GptModel::StepArgs step;  // used in training only
    kernels::Tensor sums;            // f64 [2], evaluation adds loss and tokens to it
  };
  // Call before each pass.
  void Begin(PassArgs pass);

  Status Forward(const parallel::Action& action) override;
  Status Backward(const parallel::Action& action) override;
  kernels::Tensor Input(int chunk, int slot) override { return args_.model->input(chunk, slot); }
  kernels::Tensor Output(int chunk, int slot) override { return args_.model->output(chunk, slot); }
  kernels::Tensor OutputGrad(int chunk, int slot) override {
    return args_.model->output_grad(chunk, slot);
  }
  kernels::Tensor InputGrad(int chunk, int slot) override {
    return args_.model->input_grad(chunk, slot);
  }

 private:
  // The place of this microbatch, which is loaded if this is its first action.
  int Place(int microbatch);
  // One action of training, eager or recorded.
  void Train(const parallel::Action& action, bool backward);
  // Weights that the action reads first; the others come layer by layer (on_layer) if IsByLayer.
  Status WaitWeights(const parallel::Action& action);
  bool IsByLayer(const parallel::Action& action) const;
  Status status() const;

  const Args args_;
  PassArgs pass_;
  int num_loaded_ = 0;  // microbatches of this pass
  bool recorded_ =
      false;  // this pass runs CUDA graphs: buckets are reported after a chunk's last backward
};

}  // namespace mt::engine
