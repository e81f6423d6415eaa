// Symbols: tokens, those of a microbatch; rows, those that a rank holds between matrix products
// (tokens / t under sequence parallelism); h, hidden size; t, tensor parallel ranks; d, data
// parallel replicas; q, k, f, the rank's local widths of queries, of keys and of values, and of the
// feed-forward layer (u halves of width f in front of the activation); e and w, bytes of a weight
// and of a gradient.
#include "common/spec/memory_formula.h"

#include <algorithm>
#include <vector>

#include "common/base/math.h"
#include "common/layout/layer_split.h"
#include "common/spec/derived.h"
#include "common/spec/job_kind.h"
#include "megatrain/v1/job.pb.h"

namespace mt::spec {
namespace {

namespace v1 = megatrain::v1;
using layout::ModelChunk;

// Layout rules of worker/params: parameters begin at multiples of 256 bytes; a bucket holds a
// multiple of 1,024 elements per replica and is closed at 64 MiB of gradients.
constexpr int64_t kAlignElements = 128;
constexpr int64_t kBucketUnit = 1024;
constexpr int64_t kBucketBytes = int64_t{64} << 20;

int64_t BytesOf(v1::Training::Precision precision) {
  switch (precision) {
    case v1::Training::PRECISION_FP64:
      return 8;
    case v1::Training::PRECISION_FP32:
      return 4;
    default:
      return 2;
  }
}

// Rules of worker/comm/copies: its most members, the most of a shard that is summed at once, and
// its alignment.
constexpr int64_t kMostMembers = 8;
constexpr int64_t kMostOfShard = int64_t{64} << 20;
constexpr int64_t kAlignBytes = 256;

// The symbols explained at the top of this file.
struct MemorySizes {
  explicit MemorySizes(const JobSpec& job);

  int64_t h, tokens, rows, e, w, t, d;
  int64_t q, k, f, u, heads, kv_heads, head_dim;
  int64_t norm_vectors;  // vectors of one norm: gain, and for LayerNorm the shift
  int64_t bucket_elements;
};

MemorySizes::MemorySizes(const JobSpec& job) {
  const v1::Model& m = job.model();
  const v1::Parallel& parallel = job.parallel();
  t = parallel.tensor();
  d = parallel.data();
  h = m.hidden_size();
  tokens = m.seq_length() * job.training().micro_batch_size();
  rows = parallel.sequence_parallel() ? tokens / t : tokens;
  e = BytesOf(job.training().precision());
  w = std::max<int64_t>(4, e);
  head_dim = StoredHeadDim(job);
  heads = m.heads() / t;
  kv_heads = KvHeads(m) / t;
  q = heads * head_dim;
  k = kv_heads * head_dim;
  f = FfnSize(m) / t;
  u = IsGated(m) ? 2 : 1;
  norm_vectors = m.norm() == v1::Model::NORM_LAYERNORM ? 2 : 1;
  bucket_elements =
      base::CeilDiv(parallel.has_bucket_size() ? parallel.bucket_size() : kBucketBytes, w);
}

// Adds up parameters in the order of the flat buffer and closes buckets as the engine does.
class BucketSum {
 public:
  explicit BucketSum(const MemorySizes& sizes) : unit_(sizes.d * kBucketUnit) {}

  void Add(int64_t elements) { open_ = base::RoundUp(open_, kAlignElements) + elements; }
  int64_t open() const { return open_; }
  void Close() {
    closed_ += base::RoundUp(open_, unit_);
    open_ = 0;
  }
  int64_t closed() const { return closed_; }

 private:
  const int64_t unit_;
  int64_t open_ = 0;
  int64_t closed_ = 0;
};

bool IsTied(const JobSpec& job) { return job.model().tie_embeddings(); }

// Matrices: the head's own first, then layer by layer; q, k and v are one matrix, as are gate and
// up.
void AddMatrices(const JobSpec& job, const MemorySizes& n, const ModelChunk& chunk,
                 BucketSum* sum) {
  const auto add = [&](int64_t elements) {
    if (sum->open() >= n.bucket_elements) sum->Close();
    sum->Add(elements);
  };
  if (chunk.has_head && !IsTied(job)) add(PaddedVocab(job) / n.t * n.h);
  for (int64_t layer = 0; layer < chunk.num_layers; ++layer) {
    add((n.q + 2 * n.k) * n.h);
    add(n.h * n.q);
    add(n.u * n.f * n.h);
    add(n.h * n.f);
  }
  sum->Close();
}

void AddShardedVectors(const JobSpec& job, const MemorySizes& n, const ModelChunk& chunk,
                       BucketSum* sum) {
  for (int64_t layer = 0; layer < chunk.num_layers; ++layer) {
    if (job.model().qkv_bias()) sum->Add(n.q + 2 * n.k);
    if (job.model().bias()) sum->Add(n.u * n.f);
  }
  sum->Close();
}

// Norms and row-parallel biases. The gains of QK norm are added apart where they alone need a sum
// over tensor ranks, that is without sequence parallelism.
void AddReplicatedVectors(const JobSpec& job, const MemorySizes& n, const ModelChunk& chunk,
                          BucketSum* sum) {
  const v1::Model& m = job.model();
  const bool apart = n.t > 1 && !job.parallel().sequence_parallel();
  const int64_t norms = m.parallel_residual() ? 1 : 2;
  int64_t gains = 0;  // elements of the QK norms' gains
  for (int64_t layer = 0; layer < chunk.num_layers; ++layer) {
    for (int64_t i = 0; i < norms * n.norm_vectors; ++i) sum->Add(n.h);
    if (m.bias()) {
      sum->Add(n.h);
      sum->Add(n.h);
    }
    if (!m.qk_norm()) continue;
    gains += 2;
    if (apart) continue;
    sum->Add(n.head_dim);
    sum->Add(n.head_dim);
  }
  for (int64_t i = 0; chunk.has_head && i < n.norm_vectors; ++i) sum->Add(n.h);
  sum->Close();
  if (!apart) return;
  for (int64_t i = 0; i < gains; ++i) sum->Add(n.head_dim);
  sum->Close();
}

int64_t StoredElements(const JobSpec& job, const MemorySizes& n, const ModelChunk& chunk) {
  BucketSum sum(n);
  AddMatrices(job, n, chunk, &sum);
  if (chunk.has_embedding || (chunk.has_head && IsTied(job))) {
    sum.Add(PaddedVocab(job) / n.t * n.h);
    sum.Close();
  }
  AddShardedVectors(job, n, chunk, &sum);
  AddReplicatedVectors(job, n, chunk, &sum);
  if (chunk.has_embedding && job.model().position() == v1::Model::POSITION_LEARNED) {
    sum.Add(MaxPositions(job.model()) * n.h);
    sum.Close();
  }
  return sum.closed();
}

// Bytes that one layer keeps from forward to backward without recomputation, or (`selective`) all
// but the outputs of its norms and of its activation, which are recomputed.
int64_t LayerBytes(const JobSpec& job, const MemorySizes& n, bool selective) {
  const v1::Model& m = job.model();
  const int64_t borders = m.parallel_residual() ? 1 : 2;
  const int64_t kept = selective ? 0 : 1;
  int64_t elements = borders * (1 + kept) * n.rows * n.h;  // residuals, norm outputs
  elements += n.tokens * (2 * n.q + 2 * n.k);              // qkv, o
  elements += n.tokens * (n.u + kept) * n.f;               // in front of and behind the activation
  int64_t statistics = n.tokens * n.heads + borders * n.norm_vectors * n.rows;
  if (m.qk_norm()) {
    elements += n.tokens * (n.q + n.k);  // q and k in front of their norms
    statistics += n.tokens * (n.heads + n.kv_heads);
  }
  return n.e * elements + n.w * statistics;
}

int64_t LayersBytes(const JobSpec& job, const MemorySizes& n, int64_t layers) {
  using Recompute = v1::Training::Recompute;
  const Recompute& recompute = job.training().recompute();
  const int64_t input = n.e * n.rows * n.h;
  if (recompute.mode() == Recompute::MODE_SELECTIVE) {
    return layers * LayerBytes(job, n, /*selective=*/true);
  }
  if (recompute.mode() != Recompute::MODE_FULL) {
    return layers * LayerBytes(job, n, /*selective=*/false);
  }
  if (recompute.method() == Recompute::METHOD_UNIFORM) {
    return base::CeilDiv(layers, recompute.layers()) * input;
  }
  const int64_t again = std::min(layers, recompute.layers());
  return again * input + (layers - again) * LayerBytes(job, n, /*selective=*/false);
}

// Layers of a chunk that keep their norms' outputs.
int64_t LayersWithNorms(const JobSpec& job, int64_t layers) {
  using Recompute = v1::Training::Recompute;
  const Recompute& recompute = job.training().recompute();
  if (recompute.mode() == Recompute::MODE_SELECTIVE) return 0;
  if (recompute.mode() != Recompute::MODE_FULL) return layers;
  if (recompute.method() == Recompute::METHOD_UNIFORM) return 0;
  return layers - std::min(layers, recompute.layers());
}

int64_t GatheredBytes(const JobSpec& job, const MemorySizes& n, int64_t layers) {
  const int64_t norms = job.model().parallel_residual() ? 1 : 2;
  return LayersWithNorms(job, layers) * norms * n.e * (n.tokens - n.rows) * n.h;
}

// Bytes of one slot of a chunk: its layers, the head's gradient, and those tensors at the chunk's
// boundaries that belong to no layer.
int64_t SlotBytes(const JobSpec& job, const MemorySizes& n, const ModelChunk& chunk) {
  const bool starts_inside = !chunk.has_embedding;
  const bool ends_inside = !chunk.has_head;
  const bool empty = chunk.num_layers == 0;
  int64_t borders = 0;
  if (chunk.has_head) ++borders;                               // gradient of the residual
  if (starts_inside && !(empty && chunk.has_head)) ++borders;  // gradient of the input
  if (starts_inside && empty) ++borders;  // the input; otherwise the first layer keeps it
  if (ends_inside && !(empty && starts_inside)) borders += 2;  // the output and its gradient
  return LayersBytes(job, n, chunk.num_layers) + borders * n.e * n.rows * n.h;
}

int64_t TensorSumBytes(const JobSpec& job, const MemorySizes& n) {
  if (n.t == 1 || n.t > kMostMembers) return 0;
  if (job.placement().device() != v1::Placement::DEVICE_GPU) return 0;
  const int64_t shard = base::CeilDiv(n.e * n.tokens * n.h, n.t);
  return (n.t - 1) * base::RoundUp(std::min(shard, kMostOfShard), kAlignBytes);
}

int64_t NumMoments(const v1::Optimizer& optimizer) {
  if (optimizer.type() == v1::Optimizer::TYPE_SGD) return optimizer.momentum() > 0 ? 1 : 0;
  return 2;
}

constexpr int64_t kSideBySide = 8;    // texts that worker/decode computes at once
constexpr int64_t kDecodeRows = 128;  // tokens of a prompt

// As worker/decode/decode_model.cc takes it, but for the workspace.
int64_t PromptBytes(const JobSpec& job, const MemorySizes& n, int64_t layers) {
  if (!WritesTexts(job)) return 0;
  const v1::Training::Eval& eval = job.training().eval();
  int64_t positions = eval.decode_tokens();
  for (const std::string& prompt : eval.prompts()) {
    const int64_t tokens = std::max<int64_t>(std::ssize(prompt), 1) + eval.prompt_tokens();
    positions = std::max(positions, tokens);
  }
  positions = std::min(MaxPositions(job.model()), positions);
  const int64_t sequences =
      eval.decode_tokens() > 0 ? kSideBySide : std::min<int64_t>(eval.prompts_size(), kSideBySide);
  const int64_t cache = 2 * layers * sequences * n.k * positions;
  const int64_t hidden = job.model().parallel_residual() ? 4 : 3;
  const int64_t rows = kDecodeRows * (hidden * n.h + 2 * n.q + 2 * n.k + (n.u + 1) * n.f);
  return n.e * (cache + rows) + n.w * kSideBySide * PaddedVocab(job);
}

// As worker/decode/saved_text.h has it.
int64_t BytesThatAreRead(const JobSpec& reader, const JobSpec& trained) {
  if (reader.read().has_precision()) return BytesOf(reader.read().precision());
  const int64_t bytes = BytesOf(trained.training().precision());
  if (reader.placement().device() == v1::Placement::DEVICE_GPU) return bytes == 8 ? 4 : bytes;
  return bytes == 2 ? 4 : bytes;
}

}  // namespace

RankMemory MemoryOfReader(const JobSpec& reader, const JobSpec& trained) {
  const v1::Model& model = trained.model();
  const int64_t bytes = BytesThatAreRead(reader, trained);
  int64_t positions = MaxPositions(model);
  int64_t sequences = 1;
  if (KindOf(reader).decodes) {
    const v1::Generate& asked = reader.generate();
    int64_t longest = 1;
    for (const std::string& prompt : asked.prompts())
      longest = std::max(longest, static_cast<int64_t>(prompt.size()));
    positions = std::min(positions, longest + std::max<int64_t>(asked.tokens(), 1));
    const int64_t texts = std::max<int64_t>(asked.prompts_size(), 1) * asked.samples();
    sequences = std::min(texts, kSideBySide);
  }
  RankMemory memory;
  memory.parameters = ParameterCount(model);
  memory.weights = bytes * memory.parameters;
  memory.activations =
      2 * model.layers() * KvHeads(model) * HeadDim(model) * positions * sequences * bytes;
  return memory;
}

int64_t PromptMemoryOf(const JobSpec& job, int stage) {
  return PromptBytes(job, MemorySizes(job), LayerSplitOf(job).LayersOfStage(stage));
}

RankMemory MemoryOf(const JobSpec& job, int stage, std::span<const int> slots) {
  const MemorySizes n(job);
  RankMemory memory;
  const std::vector<ModelChunk> chunks = LayerSplitOf(job).OfStage(stage);
  CHECK_EQ(chunks.size(), slots.size());
  for (size_t c = 0; c < chunks.size(); ++c) {
    memory.parameters += StoredElements(job, n, chunks[c]);
    memory.activations += slots[c] * SlotBytes(job, n, chunks[c]);
    memory.gathered_inputs += slots[c] * GatheredBytes(job, n, chunks[c].num_layers);
  }
  memory.prompts = PromptMemoryOf(job, stage);
  memory.tensor_sums = TensorSumBytes(job, n);
  memory.weights = n.e * memory.parameters;
  memory.gradients = n.w * memory.parameters;
  const int64_t state = NumMoments(job.optimizer()) + (n.e < n.w ? 1 : 0);
  const int64_t share = job.parallel().zero_stage() >= 1 ? n.d : 1;
  memory.optimizer = n.w * state * memory.parameters / share;
  if (job.checkpoint().async_save() && !CheckpointDirectory(job).empty()) {
    // The master and the moments of the replica's own slices, whatever the ZeRO stage.
    memory.save_copy = n.w * (1 + NumMoments(job.optimizer())) * memory.parameters / n.d;
  }
  return memory;
}

}  // namespace mt::spec
