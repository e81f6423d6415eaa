// The visitor of each argument struct. A field that is missing here would be missing from
// signatures, would keep its old memory in a replay, and races for it would not be found.
#include "kernels/replay/op_call.h"

#include <type_traits>

#include <fmt/format.h>

namespace mt::kernels::replay {
namespace {

void See(OperandVisitor* visitor, std::string_view name, Tensor* tensor,
         Access access = Access::kRead) {
  if (*tensor) visitor->Operand(name, tensor, access);
}

void See(OperandVisitor* visitor, std::string_view name, Partials* partials) {
  for (int i = 0; i < partials->count; ++i)
    See(visitor, name, &partials->tensor[static_cast<size_t>(i)]);
  if (partials->rounded) visitor->Mark("rounded");
}

void See(OperandVisitor* visitor, Workspace* workspace) {
  if (workspace->data == nullptr) return;
  visitor->Block("workspace", &workspace->data, workspace->bytes, Access::kWrite);
}

// Pointers to constants in the arguments refer to blocks that the visitor may move, hence the cast.
template <class T>
void SeeBlock(OperandVisitor* visitor, std::string_view name, T** pointer) {
  if (*pointer == nullptr) return;
  constexpr Access kAccess = std::is_const_v<T> ? Access::kRead : Access::kWrite;
  void* data = const_cast<std::remove_const_t<T>*>(*pointer);
  visitor->Block(name, &data, int64_t{sizeof(T)}, kAccess);
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
    case ActKind::kGeluErf:
      return visitor->Mark("gelu_erf");
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

void See(OperandVisitor* visitor, std::string_view name, const OperandVisitor::Heads& heads,
         Access access = Access::kRead) {
  if (heads.view->data != nullptr) visitor->View(name, heads, access);
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

}  // namespace

int64_t OperandVisitor::Heads::Bytes() const {
  const int64_t last = (shape->s - 1) * view->s_stride + (shape->b - 1) * view->b_stride +
                       (heads - 1) * view->head_stride + shape->d;
  return last * SizeOf(shape->dtype);
}

void Visit(ActArgs* args, OperandVisitor* visitor) {
  See(visitor, args->kind);
  See(visitor, "pre", &args->pre);
  See(visitor, "y", &args->y, Access::kWrite);
}

void Visit(ActGradArgs* args, OperandVisitor* visitor) {
  See(visitor, args->kind);
  See(visitor, "dy", &args->dy);
  See(visitor, "pre", &args->pre);
  See(visitor, "dpre", &args->dpre, Access::kWrite);
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
  See(visitor, "residual_out", &args->residual_out, Access::kWrite);
  See(visitor, "y", &args->y, Access::kWrite);
  See(visitor, "mean", &args->mean, Access::kWrite);
  See(visitor, "rstd", &args->rstd, Access::kWrite);
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
  See(visitor, "dresidual", &args->dresidual, Access::kWrite);
  See(visitor, "dbranch", &args->dbranch, Access::kWrite);
  See(visitor, args->mode);
  See(visitor, "dgain", &args->dgain, Access::kWrite);
  See(visitor, "dshift", &args->dshift, Access::kWrite);
  See(visitor, "dbias", &args->dbias, Access::kWrite);
  See(visitor, &args->workspace);
}

void Visit(AttentionForwardArgs* args, OperandVisitor* visitor) {
  AttentionShape& shape = args->shape;
  See(visitor, &shape);
  See(visitor, "q", {&args->q, &shape, shape.a});
  See(visitor, "k", {&args->k, &shape, shape.g});
  See(visitor, "v", {&args->v, &shape, shape.g});
  See(visitor, &args->dropout);
  See(visitor, "o", {&args->o, &shape, shape.a}, Access::kWrite);
  See(visitor, "lse", &args->lse, Access::kWrite);
  See(visitor, &args->workspace);
}

void Visit(AttentionGradArgs* args, OperandVisitor* visitor) {
  AttentionShape& shape = args->shape;
  See(visitor, &shape);
  See(visitor, "q", {&args->q, &shape, shape.a});
  See(visitor, "k", {&args->k, &shape, shape.g});
  See(visitor, "v", {&args->v, &shape, shape.g});
  See(visitor, &args->dropout);
  See(visitor, "o", {&args->o, &shape, shape.a});
  See(visitor, "lse", &args->lse);
  See(visitor, "do", {&args->do_, &shape, shape.a});
  See(visitor, "dq", {&args->dq, &shape, shape.a}, Access::kWrite);
  See(visitor, "dk", {&args->dk, &shape, shape.g}, Access::kWrite);
  See(visitor, "dv", {&args->dv, &shape, shape.g}, Access::kWrite);
  if (args->deterministic) visitor->Mark("deterministic");
  See(visitor, &args->workspace);
}

void Visit(EmbeddingGatherArgs* args, OperandVisitor* visitor) {
  See(visitor, "tokens", &args->tokens);
  See(visitor, "table", &args->table);
  See(visitor, "out", &args->out, Access::kWrite);
}

// The number of segments differs between microbatches and does not make it another call.
void Visit(EmbeddingScatterArgs* args, OperandVisitor* visitor) {
  See(visitor, "dy", &args->dy);
  See(visitor, "order", &args->order);
  See(visitor, "segment_token", &args->segment_token);
  See(visitor, "segment_start", &args->segment_start);
  See(visitor, "count", &args->count);
  See(visitor, "dtable", &args->dtable, Access::kWrite);
  See(visitor, "positions", &args->positions);
  See(visitor, "dposition", &args->dposition, Access::kWrite);
}

void Visit(LinearForwardArgs* args, OperandVisitor* visitor) {
  See(visitor, "x", &args->x);
  See(visitor, "w", &args->w);
  See(visitor, "bias", &args->bias);
  See(visitor, "y", &args->y, Access::kWrite);
  See(visitor, &args->workspace);
  See(visitor, args->sm_budget);
}

void Visit(LinearForwardActArgs* args, OperandVisitor* visitor) {
  See(visitor, "x", &args->x);
  See(visitor, "w", &args->w);
  See(visitor, "bias", &args->bias);
  See(visitor, args->act);
  See(visitor, "pre", &args->pre, Access::kWrite);
  See(visitor, "y", &args->y, Access::kWrite);
  See(visitor, &args->workspace);
  See(visitor, args->sm_budget);
}

void Visit(LinearInputGradArgs* args, OperandVisitor* visitor) {
  See(visitor, "dy", &args->dy);
  See(visitor, "w", &args->w);
  See(visitor, "dx", &args->dx, Access::kWrite);
  See(visitor, &args->workspace);
  See(visitor, args->sm_budget);
}

void Visit(LinearInputGradActArgs* args, OperandVisitor* visitor) {
  See(visitor, "dy", &args->dy);
  See(visitor, "w", &args->w);
  See(visitor, "pre", &args->pre);
  See(visitor, args->act);
  See(visitor, "dpre", &args->dpre, Access::kWrite);
  See(visitor, args->mode);
  See(visitor, "dbias", &args->dbias, Access::kWrite);
  See(visitor, &args->workspace);
  See(visitor, args->sm_budget);
}

void Visit(LinearWeightGradArgs* args, OperandVisitor* visitor) {
  See(visitor, "dy", &args->dy);
  See(visitor, "x", &args->x);
  See(visitor, args->mode);
  See(visitor, "dw", &args->dw, Access::kWrite);
  See(visitor, "dbias", &args->dbias, Access::kWrite);
  See(visitor, &args->workspace);
  See(visitor, args->sm_budget);
}

void Visit(LossStatsArgs* args, OperandVisitor* visitor) {
  See(visitor, "logits", &args->logits);
  See(visitor, "labels", &args->labels);
  See(visitor, "stats", &args->stats, Access::kWrite);
}

void Visit(LossFinishArgs* args, OperandVisitor* visitor) {
  See(visitor, "logits", &args->logits, args->write_gradient ? Access::kWrite : Access::kRead);
  See(visitor, "labels", &args->labels);
  See(visitor, "stats", &args->stats, Access::kWrite);  // by StatsFinish; Finish reads them
  See(visitor, "weight", &args->weight);
  SeeBlock(visitor, "loss_scale", &args->loss_scale);
  if (!args->write_gradient) visitor->Mark("loss alone");
  See(visitor, "sums", &args->sums, Access::kWrite);
}

void Visit(RotateArgs* args, OperandVisitor* visitor) {
  See(visitor, &args->shape);
  See(visitor, "qkv", &args->qkv, Access::kWrite);
  See(visitor, "input", &args->input, Access::kWrite);
  See(visitor, "rstd", &args->rstd, Access::kWrite);
}

void Visit(RotateGradArgs* args, OperandVisitor* visitor) {
  See(visitor, &args->shape);
  See(visitor, "dqkv", &args->dqkv, Access::kWrite);
  See(visitor, "input", &args->input);
  See(visitor, "rstd", &args->rstd);
  See(visitor, args->mode);
  See(visitor, "dq_gain", &args->dq_gain, Access::kWrite);
  See(visitor, "dk_gain", &args->dk_gain, Access::kWrite);
  See(visitor, &args->workspace);
}

void Visit(SquareSumArgs* args, OperandVisitor* visitor) {
  See(visitor, "gradient", &args->gradient);
  See(visitor, "out", &args->out, Access::kWrite);
}

void Visit(AdamWArgs* args, OperandVisitor* visitor) {
  See(visitor, "gradient", &args->gradient);
  See(visitor, "master", &args->master, Access::kWrite);
  See(visitor, "m", &args->m, Access::kWrite);
  See(visitor, "v", &args->v, Access::kWrite);
  See(visitor, "model_copy", &args->model_copy, Access::kWrite);
  SeeBlock(visitor, "scalars", &args->scalars);
}

void Visit(SgdArgs* args, OperandVisitor* visitor) {
  See(visitor, "gradient", &args->gradient);
  See(visitor, "master", &args->master, Access::kWrite);
  See(visitor, "momentum", &args->momentum, Access::kWrite);
  See(visitor, "model_copy", &args->model_copy, Access::kWrite);
  SeeBlock(visitor, "scalars", &args->scalars);
}

void Visit(FillNormalArgs* args, OperandVisitor* visitor) {
  See(visitor, "out", &args->out, Access::kWrite);
}

void Visit(AddToArgs* args, OperandVisitor* visitor) {
  See(visitor, "to", &args->to, Access::kWrite);
  See(visitor, "from", &args->from);
}

void Visit(SumPartialsArgs* args, OperandVisitor* visitor) {
  See(visitor, "out", &args->out, Access::kWrite);
  See(visitor, "partial", &args->partials);
}

void Visit(CastArgs* args, OperandVisitor* visitor) {
  See(visitor, "to", &args->to, Access::kWrite);
  See(visitor, "from", &args->from);
}

void Visit(FillArgs* args, OperandVisitor* visitor) {
  See(visitor, "to", &args->to, Access::kWrite);
}

void Visit(RowSumArgs* args, OperandVisitor* visitor) {
  See(visitor, "x", &args->x);
  See(visitor, args->mode);
  See(visitor, "out", &args->out, Access::kWrite);
}

void Visit(AdvanceArgs* args, OperandVisitor* visitor) {
  SeeBlock(visitor, "scalars", &args->scalars);
  SeeBlock(visitor, "vector", &args->vector);
}

}  // namespace mt::kernels::replay
