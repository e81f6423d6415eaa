// A sequence of layers on one rank, with or without the embedding and the head: the unit of
// pipeline schedules (a model chunk). Forward and Backward are actions on a slot, whose kept
// activations live between the two. Inside the network a boundary between chunks passes one tensor
// each way: the closed residual forward, its gradient backward. A stage without layers is one end
// of the network alone, or passes its input on. Legend: T tokens, R rows of this rank between
// matrix products, h hidden.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "worker/model/embedding.h"
#include "worker/model/gpt_config.h"
#include "worker/model/head.h"
#include "worker/model/layer_group.h"
#include "worker/model/pass.h"
#include "worker/model/residual_norm.h"
#include "worker/model/vocab_matrix.h"

namespace mt::model {

class Stage {
 public:
  struct Args {
    int64_t first_layer = 0;  // global number
    int64_t num_layers = 0;
    bool embedding = true;             // input: tokens, else a residual
    bool head = true;                  // output: loss, else a residual
    size_t slots = 1;                  // microbatches between forward and backward
    int64_t head_chunk_tokens = 1024;  // rows of one chunk of logits
  };
  Stage(const GptConfig& config, const Args& args);
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  // Adds the word table if this stage has the embedding or a tied head, then all parameters in the
  // order of the network.
  void Register(params::Registry* registry);
  void Bind(const params::ParamStore& store);
  // Take kept activations of all slots, then scratch: first from measuring arenas to plan, then by
  // the same calls from the allocated ones.
  void TakeKept(memory::StackArena* arena);
  // Takes the scratch of an action. All stages of a rank may share it, because a rank runs one
  // action at a time.
  void TakeScratch(ScratchPlan* plan);

  // Enqueues the forward. `loss` is used with the head only. Without the embedding the input is in
  // input(slot).
  void Forward(const Pass& pass, size_t slot, const LossArgs& loss);
  // Enqueues the backward, in training after the slot's Forward. Without the head the gradient of
  // output(slot) is in output_grad(slot).
  void Backward(const Pass& pass, size_t slot);

  // The tensors at boundaries inside the network, [R, h] at fixed addresses; empty at the network's
  // ends. A link writes input and output_grad and reads output and input_grad. A stage that passes
  // its input on uses one tensor for input and output, and one for their gradients.
  const kernels::Tensor& input(size_t slot) const { return boundaries_[slot].input; }
  const kernels::Tensor& output(size_t slot) const { return boundaries_[slot].output; }
  const kernels::Tensor& output_grad(size_t slot) const { return boundaries_[slot].output_grad; }
  const kernels::Tensor& input_grad(size_t slot) const { return boundaries_[slot].input_grad; }

 private:
  struct ChunkBoundary {
    kernels::Tensor input, output, output_grad, input_grad;
  };

  bool ends_inside() const { return !args_.head; }
  bool starts_inside() const { return !args_.embedding; }
  bool has_layers() const { return args_.num_layers > 0; }
  bool passes_on() const { return !has_layers() && starts_inside() && ends_inside(); }
  bool has_word_embedding() const { return embedding_ || (head_ && config_.tie_embeddings); }
  void TakeBoundary(size_t slot, memory::StackArena* arena);
  // The tensors in which the slot's backward leaves its gradients.
  BranchGrad GradOf(size_t slot) const;

  const GptConfig config_;
  const Args args_;
  VocabMatrix word_embedding_;
  VocabMatrix head_matrix_;  // of an untied head
  std::optional<Embedding> embedding_;
  std::vector<std::unique_ptr<LayerGroup>> groups_;
  std::optional<Head> head_;
  // Closes the last branch: in forward if the stage ends inside the network (the head closes it
  // with its own norm), in backward always.
  ResidualNorm tail_;
  std::vector<ChunkBoundary> boundaries_;  // [slot]
  TransformerLayer::Buffers buffers_;
  BranchGrad grad_;  // scratch; residual only with the embedding, branch only with dropout
};

}  // namespace mt::model
