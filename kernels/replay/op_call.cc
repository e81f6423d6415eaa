// The visitor of each argument struct, and the texts made from it. A field that is missing here
// would be missing from signatures and would keep its old memory in a replay.
#include "kernels/replay/op_call.h"

#include <vector>

#include <fmt/format.h>

namespace mt::kernels::replay {
namespace {

void See(OperandVisitor* visitor, std::string_view name, Tensor* tensor) {
  if (*tensor) visitor->Operand(name, tensor);
}

void See(OperandVisitor* visitor, std::string_view name, Partials* partials) {
  for (int i = 0; i < partials->count; ++i)
    See(visitor, name, &partials->tensor[static_cast<size_t>(i)]);
}

void See(OperandVisitor* visitor, Workspace* workspace) {
  if (workspace->data != nullptr) visitor->Block(&workspace->data);
}

// Pointers to constants in the arguments refer to blocks that the visitor may move, hence the cast.
template <class T>
void SeeBlock(OperandVisitor* visitor, T** pointer) {
  if (*pointer == nullptr) return;
  void* data = const_cast<std::remove_const_t<T>*>(*pointer);
  visitor->Block(&data);
  *pointer = static_cast<T*>(data);
}

void See(OperandVisitor* visitor, GradMode mode) {
  if (mode == GradMode::kAdd) visitor->Mark("add");
}

void See(OperandVisitor* visitor, ActKind kind) {
  switch (kind) {
    case ActKind::kGelu:
      return visitor->Mark("gelu");
    case ActKind::kSwiglu:
      return visitor->Mark("swiglu");
    case ActKind::kGeglu:
      return visitor->Mark("geglu");
    case ActKind::kRelu2:
      return visitor->Mark("relu2");
  }
}

void See(OperandVisitor* visitor, NormKind kind) {
  if (kind == NormKind::kRmsNorm) visitor->Mark("rms");
}

void See(OperandVisitor* visitor, int sm_budget) {
  if (sm_budget > 0) visitor->Mark(fmt::format("{} SMs", sm_budget));
}

void See(OperandVisitor* visitor, Dropout* dropout) {
  See(visitor, "samples", &dropout->samples);
  See(visitor, "positions", &dropout->positions);
  if (dropout->rate.active()) visitor->Mark("dropout");
}

void See(OperandVisitor* visitor, AttentionDropout* dropout) {
  See(visitor, "samples", &dropout->samples);
  See(visitor, "positions", &dropout->positions);
  See(visitor, "key_positions", &dropout->key_positions);
  if (dropout->rate.active()) visitor->Mark("dropout");
}

void See(OperandVisitor* visitor, std::string_view name, HeadView* view,
         const AttentionShape& shape, int64_t heads) {
  if (view->data != nullptr) visitor->View(name, view, shape, heads);
}

void See(OperandVisitor* visitor, AttentionShape* shape) {
  See(visitor, "slopes", &shape->slopes);
  if (!shape->causal) visitor->Mark("full");
  if (shape->window > 0) visitor->Mark(fmt::format("window {}", shape->window));
}

void See(OperandVisitor* visitor, RotateShape* shape) {
  See(visitor, "table", &shape->table);
  See(visitor, "rope_positions", &shape->positions);
  See(visitor, "q_gain", &shape->q_gain);
  See(visitor, "k_gain", &shape->k_gain);
  visitor->Mark(fmt::format("{}+{} heads of {}", shape->a, shape->g, shape->d));
}

// Collects the parts of a signature and of a label.
class Describer final : public OperandVisitor {
 public:
  struct Part {
    std::string text;   // "x[32768,768]"
    std::string dtype;  // "bf16"
    bool is_matrix = false;
  };

  void Operand(std::string_view name, Tensor* tensor) override {
    std::string shape;
    for (int i = 0; i < tensor->shape.rank(); ++i)
      shape += fmt::format("{}{}", i == 0 ? "" : ",", tensor->shape[i]);
    parts_.push_back({.text = fmt::format("{}[{}]", name, shape),
                      .dtype = std::string(Name(tensor->dtype)),
                      .is_matrix = tensor->shape.rank() >= 2});
  }
  void View(std::string_view name, HeadView* view, const AttentionShape& shape,
            int64_t heads) override {
    parts_.push_back(
        {.text = fmt::format("{}[{},{},{},{}]", name, shape.s, shape.b, heads, shape.d),
         .dtype = fmt::format("{} by {} {} {}", Name(shape.dtype), view->s_stride, view->b_stride,
                              view->head_stride),
         .is_matrix = true});
  }
  void Block(void** /*data*/) override {}
  void Mark(std::string_view text) override { marks_ += fmt::format(" {}", text); }

  std::string Signature() const {
    std::string out;
    for (const Part& part : parts_) out += fmt::format(" {} {}", part.text, part.dtype);
    return out + marks_;
  }
  std::string Label() const {
    constexpr size_t kShown = 3;
    std::string matrices, others;
    size_t shown = 0, rest = 0;
    for (const Part& part : parts_) {
      if (part.is_matrix && shown < kShown) {
        matrices += " " + part.text;
        ++shown;
      } else if (!part.is_matrix && rest < kShown) {
        others += " " + part.text;
        ++rest;
      }
    }
    return (matrices.empty() ? others : matrices) + marks_;
  }

 private:
  std::vector<Part> parts_;
  std::string marks_;
};

Describer Described(const OpCall& call) {
  Describer describer;
  call.Clone()->VisitOperands(&describer);
  return describer;
}

}  // namespace

void Visit(ActArgs* args, OperandVisitor* visitor) {
  See(visitor, args->kind);
  See(visitor, "pre", &args->pre);
  See(visitor, "y", &args->y);
}

void Visit(ActGradArgs* args, OperandVisitor* visitor) {
  See(visitor, args->kind);
  See(visitor, "dy", &args->dy);
  See(visitor, "pre", &args->pre);
  See(visitor, "dpre", &args->dpre);
}

void Visit(AddNormArgs* args, OperandVisitor* visitor) {
  See(visitor, "residual", &args->residual);
  See(visitor, "partial", &args->partials);
  See(visitor, "bias", &args->bias);
  See(visitor, "position_table", &args->position_table);
  See(visitor, "table_positions", &args->positions);
  See(visitor, &args->dropout);
  See(visitor, args->kind);
  See(visitor, "gain", &args->gain);
  See(visitor, "shift", &args->shift);
  See(visitor, "residual_out", &args->residual_out);
  See(visitor, "y", &args->y);
  See(visitor, "mean", &args->mean);
  See(visitor, "rstd", &args->rstd);
}

void Visit(AddNormGradArgs* args, OperandVisitor* visitor) {
  See(visitor, "dy", &args->dy);
  See(visitor, "dresidual_in", &args->dresidual_in);
  See(visitor, "residual_out", &args->residual_out);
  See(visitor, "mean", &args->mean);
  See(visitor, "rstd", &args->rstd);
  See(visitor, "gain", &args->gain);
  See(visitor, args->kind);
  See(visitor, &args->dropout);
  See(visitor, "dresidual", &args->dresidual);
  See(visitor, "dbranch", &args->dbranch);
  See(visitor, args->mode);
  See(visitor, "dgain", &args->dgain);
  See(visitor, "dshift", &args->dshift);
  See(visitor, "dbias", &args->dbias);
  See(visitor, &args->workspace);
}

void Visit(AttentionForwardArgs* args, OperandVisitor* visitor) {
  AttentionShape& shape = args->shape;
  See(visitor, &shape);
  See(visitor, "q", &args->q, shape, shape.a);
  See(visitor, "k", &args->k, shape, shape.g);
  See(visitor, "v", &args->v, shape, shape.g);
  See(visitor, &args->dropout);
  See(visitor, "o", &args->o, shape, shape.a);
  See(visitor, "lse", &args->lse);
  See(visitor, &args->workspace);
}

void Visit(AttentionGradArgs* args, OperandVisitor* visitor) {
  AttentionShape& shape = args->shape;
  See(visitor, &shape);
  See(visitor, "q", &args->q, shape, shape.a);
  See(visitor, "k", &args->k, shape, shape.g);
  See(visitor, "v", &args->v, shape, shape.g);
  See(visitor, &args->dropout);
  See(visitor, "o", &args->o, shape, shape.a);
  See(visitor, "lse", &args->lse);
  See(visitor, "do", &args->do_, shape, shape.a);
  See(visitor, "dq", &args->dq, shape, shape.a);
  See(visitor, "dk", &args->dk, shape, shape.g);
  See(visitor, "dv", &args->dv, shape, shape.g);
  if (args->deterministic) visitor->Mark("deterministic");
  See(visitor, &args->workspace);
}

void Visit(EmbeddingGatherArgs* args, OperandVisitor* visitor) {
  See(visitor, "tokens", &args->tokens);
  See(visitor, "table", &args->table);
  See(visitor, "out", &args->out);
}

// The number of segments differs between microbatches and does not make it another call.
void Visit(EmbeddingScatterArgs* args, OperandVisitor* visitor) {
  See(visitor, "dy", &args->dy);
  See(visitor, "order", &args->order);
  See(visitor, "segment_token", &args->segment_token);
  See(visitor, "segment_start", &args->segment_start);
  See(visitor, "count", &args->count);
  See(visitor, "dtable", &args->dtable);
  See(visitor, "positions", &args->positions);
  See(visitor, "dposition", &args->dposition);
}

void Visit(LinearForwardArgs* args, OperandVisitor* visitor) {
  See(visitor, "x", &args->x);
  See(visitor, "w", &args->w);
  See(visitor, "bias", &args->bias);
  See(visitor, "y", &args->y);
  See(visitor, &args->workspace);
  See(visitor, args->sm_budget);
}

void Visit(LinearForwardActArgs* args, OperandVisitor* visitor) {
  See(visitor, "x", &args->x);
  See(visitor, "w", &args->w);
  See(visitor, "bias", &args->bias);
  See(visitor, args->act);
  See(visitor, "pre", &args->pre);
  See(visitor, "y", &args->y);
  See(visitor, &args->workspace);
  See(visitor, args->sm_budget);
}

void Visit(LinearInputGradArgs* args, OperandVisitor* visitor) {
  See(visitor, "dy", &args->dy);
  See(visitor, "w", &args->w);
  See(visitor, "dx", &args->dx);
  See(visitor, &args->workspace);
  See(visitor, args->sm_budget);
}

void Visit(LinearInputGradActArgs* args, OperandVisitor* visitor) {
  See(visitor, "dy", &args->dy);
  See(visitor, "w", &args->w);
  See(visitor, "pre", &args->pre);
  See(visitor, args->act);
  See(visitor, "dpre", &args->dpre);
  See(visitor, args->mode);
  See(visitor, "dbias", &args->dbias);
  See(visitor, &args->workspace);
  See(visitor, args->sm_budget);
}

void Visit(LinearWeightGradArgs* args, OperandVisitor* visitor) {
  See(visitor, "dy", &args->dy);
  See(visitor, "x", &args->x);
  See(visitor, args->mode);
  See(visitor, "dw", &args->dw);
  See(visitor, "dbias", &args->dbias);
  See(visitor, &args->workspace);
  See(visitor, args->sm_budget);
}

void Visit(LossStatsArgs* args, OperandVisitor* visitor) {
  See(visitor, "logits", &args->logits);
  See(visitor, "labels", &args->labels);
  See(visitor, "stats", &args->stats);
}

void Visit(LossFinishArgs* args, OperandVisitor* visitor) {
  See(visitor, "logits", &args->logits);
  See(visitor, "labels", &args->labels);
  See(visitor, "stats", &args->stats);
  See(visitor, "weight", &args->weight);
  SeeBlock(visitor, &args->loss_scale);
  if (!args->write_gradient) visitor->Mark("loss alone");
  See(visitor, "sums", &args->sums);
}

void Visit(RotateArgs* args, OperandVisitor* visitor) {
  See(visitor, &args->shape);
  See(visitor, "qkv", &args->qkv);
  See(visitor, "input", &args->input);
  See(visitor, "rstd", &args->rstd);
}

void Visit(RotateGradArgs* args, OperandVisitor* visitor) {
  See(visitor, &args->shape);
  See(visitor, "dqkv", &args->dqkv);
  See(visitor, "input", &args->input);
  See(visitor, "rstd", &args->rstd);
  See(visitor, args->mode);
  See(visitor, "dq_gain", &args->dq_gain);
  See(visitor, "dk_gain", &args->dk_gain);
  See(visitor, &args->workspace);
}

void Visit(SquareSumArgs* args, OperandVisitor* visitor) {
  See(visitor, "gradient", &args->gradient);
  See(visitor, "out", &args->out);
}

void Visit(AdamWArgs* args, OperandVisitor* visitor) {
  See(visitor, "gradient", &args->gradient);
  See(visitor, "master", &args->master);
  See(visitor, "m", &args->m);
  See(visitor, "v", &args->v);
  See(visitor, "model_copy", &args->model_copy);
  SeeBlock(visitor, &args->scalars);
}

void Visit(SgdArgs* args, OperandVisitor* visitor) {
  See(visitor, "gradient", &args->gradient);
  See(visitor, "master", &args->master);
  See(visitor, "momentum", &args->momentum);
  See(visitor, "model_copy", &args->model_copy);
  SeeBlock(visitor, &args->scalars);
}

void Visit(FillNormalArgs* args, OperandVisitor* visitor) { See(visitor, "out", &args->out); }

void Visit(AddToArgs* args, OperandVisitor* visitor) {
  See(visitor, "to", &args->to);
  See(visitor, "from", &args->from);
}

void Visit(SumPartialsArgs* args, OperandVisitor* visitor) {
  See(visitor, "out", &args->out);
  See(visitor, "partial", &args->partials);
}

void Visit(CastArgs* args, OperandVisitor* visitor) {
  See(visitor, "to", &args->to);
  See(visitor, "from", &args->from);
}

void Visit(FillArgs* args, OperandVisitor* visitor) { See(visitor, "to", &args->to); }

void Visit(RowSumArgs* args, OperandVisitor* visitor) {
  See(visitor, "x", &args->x);
  See(visitor, args->mode);
  See(visitor, "out", &args->out);
}

void Visit(AdvanceArgs* args, OperandVisitor* visitor) {
  SeeBlock(visitor, &args->scalars);
  SeeBlock(visitor, &args->vector);
}

std::string SignatureOf(const OpCall& call) {
  return std::string(call.entry()) + Described(call).Signature();
}

std::string LabelOf(const OpCall& call) {
  return std::string(call.entry()) + Described(call).Label();
}

}  // namespace mt::kernels::replay
