// A run of layers on one rank, with or without the embedding and the head: the unit of pipeline
// schedules (a chunk). Forward and Backward are actions on a slot, whose kept activations live from
// the one to the other. Interior borders of the network pass one tensor each way: the closed
// residual forward, its gradient backward. Without layers a stage is an end of the network alone,
// or passes its input on. Legend: T tokens, R rows of this rank between matrix products, h hidden.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "worker/model/border.h"
#include "worker/model/embedding.h"
#include "worker/model/gpt_config.h"
#include "worker/model/head.h"
#include "worker/model/layer_group.h"
#include "worker/model/pass.h"
#include "worker/model/vocab_matrix.h"

namespace mt::model {

class Stage {
 public:
  struct Args {
    int64_t first_layer = 0;
    int64_t num_layers = 0;
    bool embedding = true;  // tokens in; else a residual
    bool head = true;       // loss out; else a residual
    size_t slots = 1;       // microbatches between their forward and backward
    int64_t head_chunk_tokens = 1024;
  };
  Stage(const GptConfig& config, const Args& args);
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  // The word table where this stage has the embedding or a tied head, then the network in order.
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

  // Interior borders, [R, h] each; fixed addresses, absent at the network's ends. A link writes
  // input and output_grad and reads output and input_grad. A stage that passes its input on has one
  // tensor for input and output, and one for their gradients.
  const kernels::Tensor& input(size_t slot) const { return borders_[slot].input; }
  const kernels::Tensor& output(size_t slot) const { return borders_[slot].output; }
  const kernels::Tensor& output_grad(size_t slot) const { return borders_[slot].output_grad; }
  const kernels::Tensor& input_grad(size_t slot) const { return borders_[slot].input_grad; }

 private:
  struct Borders {
    kernels::Tensor input, output, output_grad, input_grad;
  };

  bool ends_inside() const { return !args_.head; }
  bool starts_inside() const { return !args_.embedding; }
  bool has_layers() const { return args_.num_layers > 0; }
  bool passes_on() const { return !has_layers() && starts_inside() && ends_inside(); }
  bool has_words() const { return embedding_ || (head_ && config_.tie_embeddings); }
  void TakeBorders(size_t slot, memory::StackArena* arena);
  // Where the slot's backward leaves its gradients.
  BranchGrad GradOf(size_t slot) const;

  const GptConfig config_;
  const Args args_;
  VocabMatrix words_;
  VocabMatrix head_words_;  // of a head that is not tied
  std::optional<Embedding> embedding_;
  std::vector<std::unique_ptr<LayerGroup>> groups_;
  std::optional<Head> head_;
  // Closes the last branch: forward where the stage ends inside the network (a head closes it
  // itself, with its norm), backward always.
  Border tail_;
  std::vector<Borders> borders_;  // by slot
  TransformerLayer::Buffers buffers_;
  BranchGrad grad_;  // scratch; residual only with the embedding, branch only with dropout
};

}  // namespace mt::model
