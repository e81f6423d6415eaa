// Runs all stages of a pipeline on asynchronous devices of one world (kernels/async): links and
// executors are the real ones, and each chunk enqueues a few ops instead of a model, so that a run
// takes milliseconds. What arrives is compared with what must.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "common/base/status.h"
#include "kernels/async/async_device.h"
#include "kernels/async/async_world.h"
#include "kernels/ops/backend.h"
#include "tests/worker/async/async_group.h"
#include "worker/parallel/pipeline/chunk_work.h"
#include "worker/parallel/pipeline/edges.h"
#include "worker/parallel/pipeline/executor.h"
#include "worker/parallel/schedule/schedule.h"

namespace mt::parallel {

// Every tensor is f64 [4] and tells its producer: pass, microbatch and how many chunks with layers
// have made it. Values are copied to a log as the stream comes to them.
class QueuedWork final : public ChunkWork {
 public:
  struct Args {
    const Schedule* training = nullptr;  // gives the chunks and slots
    int stage = 0;
    kernels::Backend* backend = nullptr;
    kernels::Stream* stream = nullptr;
    // Chunks that hand their buffers on, as those without layers do. May be empty.
    std::function<bool(int position)> is_empty;
    // Called in each action of the pass with this number, from 1; its error is the action's.
    std::function<Status(int pass_number, const Action&)> inject;
  };
  explicit QueuedWork(const Args& args);

  void BeginPass(const Schedule& pass);
  Status Forward(const Action& action) override;
  Status Backward(const Action& action) override;
  kernels::Tensor Input(int chunk, int slot) override { return At(chunk, slot).input; }
  kernels::Tensor Output(int chunk, int slot) override;
  kernels::Tensor OutputGrad(int chunk, int slot) override { return At(chunk, slot).output_grad; }
  kernels::Tensor InputGrad(int chunk, int slot) override;

  // Waits for the stream; how many values were not what they should be.
  int CountMistakes();

 private:
  // One slot of one chunk.
  struct Slot {
    kernels::Tensor input, output, output_grad, input_grad;
  };

  Slot& At(int chunk, int slot);
  kernels::Tensor NewTensor();
  bool IsEmpty(int position) const { return args_.is_empty && args_.is_empty(position); }
  double Base(int microbatch) const { return 1000.0 * pass_number_ + 10 * microbatch; }
  // What arrives at a chunk in its forward and its backward.
  double Activation(const Action& action) const;
  double Gradient(const Action& action) const;
  void Log(const kernels::Tensor& tensor, double expected);
  // to = from + value
  void Make(const kernels::Tensor& to, const kernels::Tensor& from, double value);

  const Args args_;
  std::vector<std::unique_ptr<kernels::DeviceBuffer>> buffers_;
  std::vector<std::vector<Slot>> slots_;  // [chunk][slot]
  Schedule pass_;
  int pass_number_ = 0;
  std::vector<std::unique_ptr<kernels::DeviceBuffer>> logged_;
  std::vector<double> expected_;
};

struct QueuedArgs {
  // Its slots are the work's; passes run in this order, each of the same stages and chunks.
  const Schedule* training = nullptr;
  std::vector<const Schedule*> passes;
  std::function<kernels::async::Sharing(int stage)> sharing;
  std::function<bool(int position)> is_empty;
  // Of a stage's host group: CommConfig::host. Empty: all on one host.
  std::function<std::string(int stage)> host_of = {};
  // Called in each action: its error is the action's, and all links of all stages are aborted then,
  // as where a job fails. May be empty.
  std::function<Status(int stage, int pass_number, const Action&)> inject;
};

// The stages of a pipeline with their links, for as many runs as a test likes. World and CPU must
// outlive them.
class QueuedStages {
 public:
  QueuedStages(kernels::async::AsyncWorld* world, kernels::Backend* cpu, QueuedArgs args);

  // Makes the links, runs all passes and waits for the device, also where a stage fails. By stage:
  // what went wrong. Throws the world's DeviceError.
  std::vector<Status> Run();
  // Whether all links of a stage write the peer's memory, and whether none does.
  bool AllPeer(int stage) const;
  bool NonePeer(int stage) const;

 private:
  struct Stage {
    std::unique_ptr<kernels::Backend> backend;
    std::unique_ptr<kernels::Stream> stream;
    std::unique_ptr<QueuedWork> work;
    StageLinks links;
  };
  Status Open(int stage);
  Status RunPasses(Stage* own, int stage);
  Status RunStage(int stage);
  int NumPeer(int stage, int* num_links) const;

  kernels::async::AsyncWorld* const world_;
  kernels::Backend* const cpu_;
  const QueuedArgs args_;
  comm::AsyncHub host_, device_;
  std::vector<Stage> stages_;
};

}  // namespace mt::parallel
