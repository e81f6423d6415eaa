// ChunkWork without computation: every tensor identifies its producer (microbatch, position in the
// model, pass) and has a value that depends on all chunks before it. Every action checks its inputs
// and that nobody has touched its slot since.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "worker/parallel/pipeline/chunk_work.h"
#include "worker/parallel/schedule/schedule.h"

namespace mt::parallel {

// The whole buffer.
inline kernels::Tensor View(std::vector<int64_t>& buffer) {
  return {buffer.data(), kernels::DType::kI64, {static_cast<int64_t>(buffer.size())}};
}

class FakeWork final : public ChunkWork {
 public:
  struct Args {
    const Schedule* schedule = nullptr;  // gives the chunks and slots
    int stage = 0;
    uint64_t seed = 0;       // of the delays
    int max_delay_us = 100;  // before and after an action's reads
    // Chunks that hand their buffers on, as those without layers do: Output is Input, InputGrad is
    // OutputGrad.
    std::function<bool(int position)> is_empty;
    // The last chunk makes its InputGrad in its Forward, as a head without layers does.
    bool early_gradient = false;
    // Called in each action; its error is the action's.
    std::function<Status(const Action&)> inject;
  };
  explicit FakeWork(Args args);

  // Passes are numbered, so that a message of an earlier one is seen.
  void BeginPass(const Schedule& schedule);
  Status Forward(const Action& action) override;
  Status Backward(const Action& action) override;
  bool ForwardWritesInputGrad(int chunk) override;
  kernels::Tensor Input(int chunk, int slot) override;
  kernels::Tensor Output(int chunk, int slot) override;
  kernels::Tensor OutputGrad(int chunk, int slot) override;
  kernels::Tensor InputGrad(int chunk, int slot) override;

  // Actions of this pass, by chunk: forwards, backwards.
  const std::vector<std::array<int, 2>>& done() const { return done_; }

 private:
  static constexpr int64_t kWords = 24;
  using Buffer = std::vector<int64_t>;
  // One slot of one chunk.
  struct Slot {
    Buffer input, output, output_grad, input_grad;
  };

  Slot& At(int chunk, int slot);
  bool Empty(int chunk) const;
  bool IsLast(int chunk) const;
  void Delay();
  // What position `from` makes of microbatch i; from -1: the tokens, from the number of positions:
  // the loss.
  Buffer Made(ActionKind kind, int microbatch, int from) const;
  Status Expect(const Buffer& got, const Buffer& want, const Action& action,
                const char* what) const;

  const Args args_;
  std::mt19937_64 random_;
  std::vector<std::vector<Slot>> slots_;  // [chunk][slot]
  Schedule pass_;
  int64_t pass_number_ = 0;
  std::vector<std::array<int, 2>> done_;
};

}  // namespace mt::parallel
