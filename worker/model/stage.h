// A run of layers on one rank, with or without the embedding and the head: the unit of pipeline
// schedules (a chunk). Forward and Backward are actions on a slot, whose kept activations live from
// the one to the other. Interior borders of the network pass one tensor each way: the closed
// residual forward, its gradient backward. Legend: T tokens, h hidden.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "worker/model/border.h"
#include "worker/model/embedding.h"
#include "worker/model/gpt_config.h"
#include "worker/model/head.h"
#include "worker/model/pass.h"
#include "worker/model/transformer_layer.h"

namespace mt::model {

class Stage {
 public:
  struct Args {
    int64_t first_layer = 0;
    int64_t num_layers = 0;  // at least 1
    bool embedding = true;   // tokens in; else a residual
    bool head = true;        // loss out; else a residual
    size_t slots = 1;        // microbatches between their forward and backward
    int64_t head_chunk_tokens = 1024;
  };
  Stage(const GptConfig& config, const Args& args);
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  // The word table where this stage has the embedding or the head, then the network in order.
  void Register(params::Registry* registry);
  void Bind(const params::ParamStore& store);
  // Kept activations of all slots, then scratch. First with measuring arenas, then, by the same
  // calls, with the real ones.
  void TakeKept(memory::StackArena* arena);
  // What an action needs; stages of a rank may take the same bytes, since it runs one action at a
  // time.
  void TakeScratch(ScratchPlan* plan);

  // `loss` is used with the head only. Without the embedding the input is in input(slot).
  void Forward(const Pass& pass, size_t slot, const LossArgs& loss);
  // In training, after Forward of the slot. Without the head the gradient of output(slot) is in
  // output_grad(slot).
  void Backward(const Pass& pass, size_t slot);

  // Interior borders, [T, h] each; fixed addresses, absent at the network's ends. A link writes
  // input and output_grad and reads output and input_grad.
  const kernels::Tensor& input(size_t slot) const { return inputs_[slot]; }
  const kernels::Tensor& output(size_t slot) const { return tail_.residual(slot); }
  const kernels::Tensor& output_grad(size_t slot) const { return output_grads_[slot]; }
  const kernels::Tensor& input_grad(size_t slot) const { return input_grads_[slot]; }

 private:
  bool ends_inside() const { return !args_.head; }
  bool starts_inside() const { return !args_.embedding; }

  const GptConfig config_;
  const Args args_;
  WordTable words_;
  std::optional<Embedding> embedding_;
  std::vector<std::unique_ptr<TransformerLayer>> layers_;
  std::optional<Head> head_;
  // Closes the last branch: forward where the stage ends inside the network (a head closes it
  // itself, with its norm), backward always.
  Border tail_;
  std::vector<kernels::Tensor> inputs_, input_grads_, output_grads_;  // by slot
  TransformerLayer::Buffers buffers_;
  BranchGrad grad_;  // scratch; one buffer twice without hidden dropout
};

}  // namespace mt::model
