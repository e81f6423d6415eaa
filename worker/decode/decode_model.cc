// Memory, rows and logits; the layers are decode_forward.cc's.
#include "worker/decode/decode_model.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include <fmt/format.h>

#include "common/base/check.h"
#include "worker/model/pass.h"

namespace mt::decode {

using kernels::DType;
using kernels::Tensor;

namespace {

static_assert(DecodeModel::kMaxRows * int64_t{sizeof(int32_t)} % memory::kAlignBytes == 0,
              "what an arena gives one after the other is one piece");

// The rank's chunks, or one of the whole network.
std::vector<layout::ModelChunk> ChunksOf(const DecodeModel::Args& args) {
  if (!args.part.chunks.empty()) return args.part.chunks;
  return {{.num_layers = args.config.layers, .has_embedding = true, .has_head = true}};
}

}  // namespace

StatusOr<std::unique_ptr<DecodeModel>> DecodeModel::Make(const Args& args) {
  auto made = std::unique_ptr<DecodeModel>(new DecodeModel(args));
  memory::MemoryPlan plan;
  RETURN_IF_ERROR(made->Plan(&plan));
  ASSIGN_OR_RETURN(made->memory_,
                   memory::Memory::Allocate(args.backend->device(), plan, args.memory_limit_bytes));
  made->Bind();
  return made;
}

DecodeModel::DecodeModel(const Args& args)
    : args_(args), exchange_(args.part), tables_(args.config) {
  CHECK_GT(args.sequences, 0);
  CHECK_GT(args.logit_rows, 0);
  CHECK(args.max_rows > 0 && args.max_rows % kMaxRows == 0);
  CHECK_EQ(exchange_.tensor_ranks(), args.config.shard.size);
  CHECK(args.trained != nullptr || exchange_.alone()) << "own weights are of the whole network";
  if (args.trained == nullptr) own_weights_.emplace(args.config);
  for (const layout::ModelChunk& place : ChunksOf(args))
    chunks_.push_back({place, std::vector<DecodeLayer>(static_cast<size_t>(place.num_layers))});
}

const DecodeWeights& DecodeModel::weights() const {
  CHECK(own_weights_.has_value()) << "the weights are those of training";
  return *own_weights_;
}

Status DecodeModel::Plan(memory::MemoryPlan* plan) {
  const model::GptConfig& c = args_.config;
  if (!on_host() && c.dtype == DType::kF64)
    return base::FailedPrecondition("fp64 is decoded on a CPU, not on a GPU");
  if (own_weights_) own_weights_->Plan(plan);
  tables_.Plan(plan);
  auto arena = memory::StackArena::Measuring();
  buffers_ = Take(&arena);
  buffers_block_ = plan->Reserve(memory::Kind::kActivations, arena.peak_bytes());
  auto caches = memory::StackArena::Measuring();
  TakeCaches(&caches);
  caches_block_ = plan->Reserve(memory::Kind::kActivations, caches.peak_bytes());
  try {
    workspace_block_ = plan->Reserve(memory::Kind::kWorkspace, WorkspaceBytes());
  } catch (const kernels::DeviceError& error) {
    return base::FailedPrecondition("{}", error.what());
  }
  auto pinned = memory::StackArena::Measuring();
  TakePinned(&pinned);
  pinned_block_ = plan->Reserve(memory::Kind::kPinned, pinned.peak_bytes());
  return OkStatus();
}

void DecodeModel::TakePinned(memory::StackArena* arena) {
  const model::GptConfig& c = args_.config;
  const DType accumulator = kernels::AccumulatorOf(c.dtype);
  host_rows_ = arena->Take(DType::kI32, {3, args_.max_rows});
  if (!on_host()) {
    host_logits_ =
        arena->Take(accumulator, {exchange_.tensor_ranks() * args_.logit_rows, c.local_vocab()});
  }
  if (!exchange_.alone()) joined_ = arena->Take(accumulator, {args_.logit_rows, c.vocab});
}

int64_t DecodeModel::WorkspaceBytes() {
  const model::GptConfig& c = args_.config;
  int64_t bytes = 0;
  for (const DecodeChunk& chunk : chunks_) {
    if (chunk.layers.empty()) continue;
    bytes = args_.backend->attention().DecodeWorkspaceBytes(
        Pass().DecodeArgs(chunk.layers.front(), buffers_));
  }
  // Few rows need no plan.
  const auto plan = [&](const Tensor& x, const Tensor& y, bool bias) {
    const int64_t outputs = y.shape[1], inputs = x.shape[1];
    const kernels::LinearForwardArgs product = {
        .x = x,
        .w = model::Placeholder(c.dtype, {outputs, inputs}),
        .bias = bias ? model::Placeholder(c.dtype, {outputs}) : Tensor{},
        .y = y};
    bytes = std::max(bytes, args_.backend->linear().Plan(product));
  };
  for (const int64_t count : {kMaxRows, args_.max_rows}) {
    const DecodeBuffers b = FirstRows(buffers_, count);
    plan(b.y, b.qkv, c.qkv_bias);
    plan(b.o, b.partial, false);
    plan(b.y, b.pre, c.bias);
    plan(b.act, b.partial, false);
  }
  if (has_head() && args_.logit_rows > kernels::kMaxFewRows)
    plan(buffers_.head_rows, buffers_.logits, false);
  if (args_.max_rows > kMaxRows && !on_host())
    bytes = std::max(bytes, args_.backend->attention().Plan(Pass().PromptArgs(buffers_)));
  return bytes;
}

void DecodeModel::Bind() {
  if (own_weights_) own_weights_->Bind(*memory_);
  tables_.Bind(*memory_, args_.backend->device(), *args_.stream);
  memory::StackArena arena(memory_->Data(buffers_block_), buffers_block_.bytes);
  buffers_ = Take(&arena);
  memory::StackArena caches(memory_->Data(caches_block_), caches_block_.bytes);
  TakeCaches(&caches);
  workspace_ = {memory_->Data(workspace_block_), workspace_block_.bytes};
  memory::StackArena pinned(memory_->Data(pinned_block_), pinned_block_.bytes);
  TakePinned(&pinned);
  put_ = args_.backend->device().CreateEvent();
  // One copy brings all three.
  CHECK(static_cast<char*>(buffers_.positions.data) ==
        static_cast<char*>(buffers_.tokens.data) + 2 * args_.max_rows * SizeOf(DType::kI32));
  const WeightSource& weights = own_weights_ ? *own_weights_ : *args_.trained;
  ends_ = EndsOf(weights, args_.config);
  for (DecodeChunk& chunk : chunks_) {
    int64_t number = chunk.place.first_layer;
    for (DecodeLayer& layer : chunk.layers) {
      DecodeLayer bound = LayerOf(weights, args_.config, number++);
      bound.k_cache = layer.k_cache;
      bound.v_cache = layer.v_cache;
      layer = bound;
    }
  }
}

DecodeBuffers DecodeModel::Take(memory::StackArena* arena) const {
  const model::GptConfig& c = args_.config;
  const DType accumulator = kernels::AccumulatorOf(c.dtype);
  const int64_t most = args_.max_rows;
  const auto rows = [&](int64_t columns) { return arena->Take(c.dtype, {most, columns}); };
  DecodeBuffers b;
  for (Tensor* const ints : {&b.tokens, &b.sequences, &b.positions})
    *ints = arena->Take(DType::kI32, {most});
  for (Tensor* const hidden : {&b.residual, &b.y, &b.partial}) *hidden = rows(c.hidden);
  b.rstd = arena->Take(accumulator, {most});
  if (c.norm == kernels::NormKind::kLayerNorm) b.mean = arena->Take(accumulator, {most});
  b.qkv = rows(c.query_width() + 2 * c.key_width());
  b.o = rows(c.query_width());
  if (most > kMaxRows) b.lse = arena->Take(accumulator, {c.local_heads(), most});
  if (c.qk_norm) {
    b.qk_input = rows(c.query_width() + c.key_width());
    b.qk_rstd = arena->Take(accumulator, {most, c.local_heads() + c.local_kv_heads()});
  }
  b.pre = rows(kernels::PreColumns(c.activation, c.local_ffn()));
  b.act = rows(c.local_ffn());
  if (c.parallel_residual) {
    b.second = rows(c.hidden);
    b.bias_sum = arena->Take(c.dtype, {c.hidden});
  }
  const kernels::Shape logits = {args_.logit_rows, c.local_vocab()};
  if (has_head()) {
    b.head_rows = arena->Take(c.dtype, {args_.logit_rows, c.hidden});
    b.logits = arena->Take(c.dtype, logits);
    if (SizeOf(c.dtype) == 2) b.wide_logits = arena->Take(DType::kF32, logits);
  }
  if (!exchange_.alone())
    b.all_logits = arena->Take(accumulator, {exchange_.tensor_ranks() * logits[0], logits[1]});
  return b;
}

void DecodeModel::TakeCaches(memory::StackArena* arena) {
  const model::GptConfig& c = args_.config;
  const kernels::Shape shape = {args_.sequences, c.local_kv_heads(), c.seq, c.stored_head()};
  for (DecodeChunk& chunk : chunks_) {
    for (DecodeLayer& layer : chunk.layers)
      for (Tensor* const cache : {&layer.k_cache, &layer.v_cache})
        *cache = arena->Take(c.dtype, shape);
  }
}

ForwardPass DecodeModel::Pass() {
  return {.config = &args_.config,
          .backend = args_.backend,
          .stream = args_.stream,
          .exchange = &exchange_,
          .tables = &tables_,
          .ends = &ends_,
          .workspace = workspace_,
          .prompt_rows = long_prompt_ ? rows_ : 0,
          .one_row_each = one_row_each_};
}

void DecodeModel::Compute(int64_t count) { Pass().Run(chunks_, FirstRows(buffers_, count)); }

int64_t DecodeModel::PaddedRows(int64_t count) const {
  if (on_host() || count <= kernels::kMaxFewRows) return count;
  return count <= kMaxRows ? kMaxRows : args_.max_rows;
}

void DecodeModel::Put(std::span<const Row> rows, int64_t count) {
  put_->Synchronize();  // the copy before
  auto* const tokens = host_rows_.Data<int32_t>();
  const auto most = static_cast<size_t>(args_.max_rows);
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    const Row& row = rows[std::min(i, rows.size() - 1)];
    CHECK(row.token >= 0 && row.token < args_.config.vocab) << "token " << row.token;
    CHECK(row.sequence >= 0 && row.sequence < args_.sequences) << "sequence " << row.sequence;
    CHECK(row.position >= 0 && row.position < args_.config.seq) << "position " << row.position;
    tokens[i] = row.token;
    tokens[most + i] = row.sequence;
    tokens[2 * most + i] = row.position;
  }
  args_.backend->device().Copy(*args_.stream, buffers_.tokens.data, host_rows_.data,
                               host_rows_.Bytes());
  put_->Record(*args_.stream);
}

void DecodeModel::Forward(std::span<const Row> rows) {
  const auto count = static_cast<int64_t>(rows.size());
  CHECK(count > 0 && count <= args_.max_rows) << count << " rows";
  long_prompt_ = IsLongPrompt(rows);
  one_row_each_ = false;
  rows_ = count;
  Put(rows, PaddedRows(count));
  Compute(PaddedRows(count));
}

void DecodeModel::Head(const Tensor& x, int64_t count) {
  Tensor logits;
  if (has_head()) {
    Pass().Product(x, ends_.head, {}, buffers_.logits.Rows(0, x.shape[0]));
    logits = buffers_.logits.Rows(0, count);
    if (buffers_.wide_logits) {
      const Tensor wide = buffers_.wide_logits.Rows(0, count);
      args_.backend->vector().Cast(*args_.stream, wide, logits);
      logits = wide;
    }
  }
  if (!exchange_.alone()) {
    const Tensor all = buffers_.all_logits.Rows(0, exchange_.tensor_ranks() * count);
    exchange_.ShareLogits(*args_.stream, args_.backend->device(), logits, all);
    logits = all;
  }
  if (on_host()) return;
  args_.backend->device().Copy(*args_.stream, host_logits_.data, logits.data, logits.Bytes());
}

Tensor DecodeModel::HostLogits(int64_t count) {
  Tensor logits = host_logits_;
  if (!on_host()) {
    args_.stream->Synchronize();
  } else if (!exchange_.alone()) {
    logits = buffers_.all_logits;
  } else {
    logits = buffers_.wide_logits ? buffers_.wide_logits : buffers_.logits;
  }
  if (exchange_.alone()) return logits.Rows(0, count);
  const Tensor rows = joined_.Rows(0, count);
  JoinLogits(logits.Rows(0, exchange_.tensor_ranks() * count), rows);
  return rows;
}

Tensor DecodeModel::Logits(std::span<const int> rows) {
  const auto count = static_cast<int64_t>(rows.size());
  CHECK(count > 0 && count <= args_.logit_rows) << count << " rows";
  if (!has_head()) {
    Head({}, count);
    return HostLogits(count);
  }
  bool follow = true;  // each other
  for (int64_t i = 0; i < count; ++i) {
    const int row = rows[static_cast<size_t>(i)];
    CHECK(row >= 0 && row < rows_) << "row " << row << " of " << rows_;
    follow = follow && row == rows[0] + i;
  }
  // On a GPU a product of many rows has one shape, what else lies there with it.
  const bool padded = !on_host() && count > kernels::kMaxFewRows;
  if (follow && !padded) {
    Head(buffers_.y.Rows(rows[0], count), count);
    return HostLogits(count);
  }
  const int64_t at_once = follow ? count : 1;
  for (int64_t i = 0; i < count; i += at_once) {
    const Tensor from = buffers_.y.Rows(rows[static_cast<size_t>(i)], at_once);
    args_.backend->device().Copy(*args_.stream, buffers_.head_rows.Rows(i, at_once).data, from.data,
                                 from.Bytes());
  }
  Head(padded ? buffers_.head_rows : buffers_.head_rows.Rows(0, count), count);
  return HostLogits(count);
}

Tensor DecodeModel::Step(std::span<const Row> rows) {
  const auto count = static_cast<int64_t>(rows.size());
  CHECK(count > 0 && count <= kernels::kMaxFewRows && count <= args_.logit_rows)
      << count << " rows";
  Put(rows, count);
  rows_ = count;
  long_prompt_ = false;
  one_row_each_ = true;
  std::set<int32_t> sequences;
  for (const Row& row : rows) sequences.insert(row.sequence);
  CHECK_EQ(std::ssize(sequences), count);
  const auto enqueue = [&] {
    Compute(count);
    Head(buffers_.y.Rows(0, count), count);
  };
  Recorded& step = steps_[static_cast<size_t>(count)];
  // The first one loads kernels, which a recording must not.
  const bool may_record = !on_host() && exchange_.alone();
  if (++step.runs > 1 && !step.recording && !step.refused && may_record) {
    std::string why_not;
    step.recording = args_.backend->device().Record(*args_.stream, enqueue, &why_not);
    step.refused = step.recording == nullptr;
  }
  if (step.recording) {
    step.recording->Launch(*args_.stream);
  } else {
    enqueue();
  }
  return HostLogits(count);
}

void DecodeModel::CopySequence(int64_t from, int64_t to, int64_t positions) {
  const model::GptConfig& c = args_.config;
  CHECK(from >= 0 && from < args_.sequences && to >= 0 && to < args_.sequences);
  CHECK(positions >= 0 && positions <= c.seq);
  const int64_t heads = c.local_kv_heads(), token = c.stored_head() * SizeOf(c.dtype);
  const int64_t head = c.seq * token;
  // Of a device one copy of all heads is faster than one of each.
  const int64_t copies = on_host() ? heads : 1;
  const int64_t bytes = on_host() ? positions * token : heads * head;
  const auto copy = [&](const Tensor& cache) {
    char* const data = static_cast<char*>(cache.data);
    for (int64_t g = 0; g < copies; ++g) {
      args_.backend->device().Copy(*args_.stream, data + (to * heads + g) * head,
                                   data + (from * heads + g) * head, bytes);
    }
  };
  for (const DecodeChunk& chunk : chunks_) {
    for (const DecodeLayer& layer : chunk.layers) {
      copy(layer.k_cache);
      copy(layer.v_cache);
    }
  }
}

bool DecodeModel::IsLongPrompt(std::span<const Row> rows) const {
  if (on_host() || std::ssize(rows) <= kMaxRows) return false;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].sequence != rows[0].sequence || rows[i].position != static_cast<int64_t>(i))
      return false;
  }
  return true;
}

}  // namespace mt::decode
