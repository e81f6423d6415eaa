// Each tensor rank is a thread that holds all stages; boundary tensors are copied from stage to
// stage by memcpy, so neither links nor schedules are involved.
#include "tests/worker/model/mesh_rig.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <thread>

#include <gtest/gtest.h>

#include "common/base/check.h"
#include "common/base/ids.h"
#include "worker/comm/threads/hub.h"

namespace mt::model {
namespace {

using kernels::GradMode;
using params::ParamSpec;

// Where a held element lies in the stored and in the logical tensor.
struct HeldElement {
  size_t stored, logical;
};

std::vector<HeldElement> HeldElements(const ParamSpec& spec) {
  const kernels::Shape held = spec.Held();
  const base::Runs places = spec.Places();
  const int64_t columns = held.rank() == 2 ? held[1] : 1;
  const int64_t logical_columns = held.rank() == 2 ? spec.shape[1] : 1;
  std::vector<HeldElement> elements;
  for (int64_t row = 0; row < held[0]; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      elements.push_back({.stored = static_cast<size_t>(places.At(row * columns + column)),
                          .logical = static_cast<size_t>((spec.begin[0] + row) * logical_columns +
                                                         spec.begin[1] + column)});
    }
  }
  return elements;
}

void AddNoise(ModelRig* rig) {
  for (const params::ParamId id : rig->Ids()) {
    const ParamSpec& spec = rig->registry()[id];
    std::mt19937_64 random(base::Hash64(spec.name));
    std::normal_distribution<double> normal(0, 0.2);
    std::vector<double> noise(static_cast<size_t>(spec.shape.NumElements()));
    for (double& x : noise) x = normal(random);
    std::vector<double> values = rig->Weight(id);
    for (const HeldElement& at : HeldElements(spec)) values[at.stored] += noise[at.logical];
    rig->SetWeight(id, values);
  }
}

void Send(const kernels::Tensor& from, const kernels::Tensor& to) {
  CHECK_EQ(from.Bytes(), to.Bytes());
  if (from.data == to.data) return;
  std::memcpy(to.data, from.data, static_cast<size_t>(from.Bytes()));
}

// All stages of one tensor rank.
class RankOfMesh {
 public:
  RankOfMesh(const GptConfig& config, const MeshLayout& layout, size_t microbatches,
             parallel::TensorParallel* tensor)
      : layout_(layout), microbatches_(static_cast<int>(microbatches)) {
    std::vector<int64_t> layers = layout.layers;
    if (layers.empty()) layers = {config.layers};
    positions_ = static_cast<int>(layers.size());
    std::vector<std::vector<GptModel::Chunk>> chunks(static_cast<size_t>(layout.stages));
    int64_t first = 0;
    for (int at = 0; at < positions_; ++at) {
      const int64_t count = layers[static_cast<size_t>(at)];
      chunks[static_cast<size_t>(at % layout.stages)].push_back(
          {.place = {.stage = at % layout.stages,
                     .chunk = at / layout.stages,
                     .first_layer = first,
                     .num_layers = count,
                     .has_embedding = at == 0,
                     .has_head = at + 1 == positions_},
           .slots = layout.gpipe ? microbatches_ : 1});
      first += count;
    }
    CHECK_EQ(first, config.layers);
    for (std::vector<GptModel::Chunk>& stage : chunks) {
      stages_.push_back(std::make_unique<ModelRig>(
          config,
          ModelRig::Options{
              .chunks = std::move(stage), .max_microbatches = microbatches_, .tensor = tensor}));
      stages_.back()->set_seed(1.0 / static_cast<double>(config.tokens() * microbatches_));
      AddNoise(stages_.back().get());
      // A step before left gradients behind; the overwriting microbatch must not see them.
      stages_.back()->FillGrads(7);
    }
  }

  void Load(const std::vector<data::Microbatch>& batches) {
    for (const auto& stage : stages_) {
      for (int i = 0; i < microbatches_; ++i) {
        stage->model().LoadBatch(i, batches[static_cast<size_t>(i)]);
      }
    }
  }
  Sums Evaluate() {
    for (int i = 0; i < microbatches_; ++i) {
      for (int at = 0; at < positions_; ++at) {
        double sums[2] = {0, 0};
        const kernels::Tensor to = {sums, kernels::DType::kF64, {2}};
        Model(at).Evaluate(Chunk(at), 0, i, to);
        loss_.loss += sums[0];
        loss_.weight += sums[1];
        SendOn(at, 0);
      }
    }
    return std::exchange(loss_, {});
  }
  Sums Step() {
    for (int i = 0; i < microbatches_; ++i) {
      Forward(i);
      if (!layout_.gpipe) Backward(i);
    }
    for (int i = 0; layout_.gpipe && i < microbatches_; ++i) Backward(i);
    return stages_[static_cast<size_t>((positions_ - 1) % layout_.stages)]->TakeSums();
  }
  const std::vector<std::unique_ptr<ModelRig>>& stages() const { return stages_; }
  // What the chunks have sent on: closed residuals of slot 0.
  std::vector<std::vector<uint8_t>> Outputs() {
    std::vector<std::vector<uint8_t>> outputs;
    for (int at = 0; at + 1 < positions_; ++at) {
      const kernels::Tensor& out = Model(at).output(Chunk(at), 0);
      const auto* bytes = static_cast<const uint8_t*>(out.data);
      outputs.emplace_back(bytes, bytes + out.Bytes());
    }
    return outputs;
  }

 private:
  ModelRig& Rig(int at) { return *stages_[static_cast<size_t>(at % layout_.stages)]; }
  GptModel& Model(int at) { return Rig(at).model(); }
  int Chunk(int at) const { return at / layout_.stages; }
  int SlotOf(int i) const { return layout_.gpipe ? i : 0; }
  GptModel::StepArgs Args(int at, int i) {
    return Rig(at).StepArgs(i == 0 ? GradMode::kOverwrite : GradMode::kAdd, i + 1 == microbatches_);
  }
  void SendOn(int at, int slot) {
    if (at + 1 == positions_) return;
    Send(Model(at).output(Chunk(at), slot), Model(at + 1).input(Chunk(at + 1), slot));
  }
  void Forward(int i) {
    for (int at = 0; at < positions_; ++at) {
      Model(at).Forward(Chunk(at), SlotOf(i), i, Args(at, i));
      SendOn(at, SlotOf(i));
    }
  }
  void Backward(int i) {
    const int slot = SlotOf(i);
    for (int at = positions_ - 1; at >= 0; --at) {
      Model(at).Backward(Chunk(at), slot, i, Args(at, i));
      if (at == 0) continue;
      Send(Model(at).input_grad(Chunk(at), slot), Model(at - 1).output_grad(Chunk(at - 1), slot));
    }
  }

  const MeshLayout layout_;
  const int microbatches_;
  int positions_ = 0;
  std::vector<std::unique_ptr<ModelRig>> stages_;
  Sums loss_;
};

// Puts a stage's gradients of all tensor ranks into the logical tensors.
void Gather(const std::vector<const ModelRig*>& ranks, MeshResult* result) {
  for (const params::ParamId id : ranks.front()->Ids()) {
    const ParamSpec& spec = ranks.front()->registry()[id];
    std::vector<double> whole(static_cast<size_t>(spec.shape.NumElements()), 0.0);
    // The last rank of a cut tensor has not all of it; the first may, beside padding alone.
    const bool replicated = ranks.back()->registry()[id].Held() == spec.shape;
    for (const ModelRig* rank : ranks) {
      const std::vector<double> part = rank->Grad(id);
      const std::vector<HeldElement> held = HeldElements(rank->registry()[id]);
      std::vector<double> padding = part;
      for (const HeldElement& at : held) padding[at.stored] = 0;
      for (const double x : padding) EXPECT_EQ(x, 0.0) << "padding of " << spec.name;
      if (replicated && !spec.partial) {
        EXPECT_EQ(part, ranks.front()->Grad(id)) << spec.name << " differs between tensor ranks";
        if (rank != ranks.front()) continue;
      }
      for (const HeldElement& at : held) whole[at.logical] += part[at.stored];
    }
    const auto [at, inserted] = result->grads.emplace(spec.name, whole);
    if (inserted) continue;
    // The tied table is held twice: the embedding's share and the head's.
    EXPECT_EQ(spec.name, "embedding.word.weight");
    for (size_t i = 0; i < whole.size(); ++i) at->second[i] += whole[i];
  }
}

constexpr int64_t kElementBytes = 8;

}  // namespace

GptConfig GptLike() {
  GptConfig config = SmallConfig();
  config.heads = config.kv_heads = 4;
  config.head_dim = 6;
  config.hidden_dropout = 0.1;
  config.attention_dropout = 0.1;
  config.head_chunk_tokens = 16;
  return config;
}

GptConfig LlamaLike() {
  GptConfig config = GptLike();
  config.heads = 8;
  config.position = PositionKind::kRope;
  config.rope.head_dim = config.head_dim;
  config.norm = kernels::NormKind::kRmsNorm;
  config.activation = kernels::ActKind::kSwiglu;
  config.bias = config.qkv_bias = false;
  config.tie_embeddings = false;
  return config;
}

std::vector<data::Microbatch> RandomBatches(const GptConfig& config, int count) {
  std::vector<data::Microbatch> batches;
  int64_t sample = (int64_t{1} << 33) + 1;
  for (int i = 0; i < count; ++i) {
    batches.push_back(RandomBatch(config, static_cast<uint64_t>(i) + 1, sample));
    sample += config.micro_batch;
  }
  return batches;
}

KeptFormula::KeptFormula(const GptConfig& config)
    : tokens(config.tokens()),
      rows(config.rows()),
      hidden(config.hidden),
      query(config.query_width()),
      key(config.key_width()),
      ffn(config.local_ffn()),
      pre(kernels::PreColumns(config.activation, ffn)),
      heads(config.local_heads()),
      statistics(config.norm == kernels::NormKind::kLayerNorm ? 4 : 2) {}

int64_t KeptFormula::Layer() const {
  return kElementBytes * (4 * rows * hidden + tokens * (2 * query + 2 * key + pre + ffn + heads) +
                          statistics * rows);
}

int64_t KeptFormula::SelectiveLayer() const {
  return Layer() - kElementBytes * (2 * rows * hidden + tokens * ffn);
}

int64_t KeptFormula::Residual() const { return kElementBytes * rows * hidden; }

MeshResult RunMesh(const GptConfig& config, const MeshLayout& layout,
                   const std::vector<data::Microbatch>& batches) {
  comm::ThreadsHub hub(comm::CommConfig{});
  const auto tp = static_cast<size_t>(layout.tp);
  std::vector<std::unique_ptr<RankOfMesh>> ranks(tp);
  std::vector<MeshResult> results(tp);
  std::vector<int> members(tp);
  for (int r = 0; r < layout.tp; ++r) members[static_cast<size_t>(r)] = r;
  const auto body = [&](int rank) {
    GptConfig own = config;
    own.shard = {.rank = rank, .size = layout.tp, .sequence_parallel = layout.sequence_parallel};
    auto group = hub.Create({.name = "tp", .members = members, .my_index = rank}).value();
    parallel::TensorParallel tensor(group.get(), layout.sequence_parallel);
    const auto at = static_cast<size_t>(rank);
    ranks[at] = std::make_unique<RankOfMesh>(own, layout, batches.size(), &tensor);
    ranks[at]->Load(batches);
    results[at].evaluation = ranks[at]->Evaluate();
    results[at].sums = ranks[at]->Step();
    EXPECT_TRUE(tensor.status().ok()) << tensor.status();
  };
  std::vector<std::thread> threads;
  for (int r = 0; r < layout.tp; ++r) threads.emplace_back(body, r);
  for (std::thread& thread : threads) thread.join();

  MeshResult result = results.front();
  for (const MeshResult& other : results) {
    EXPECT_EQ(other.sums.loss, result.sums.loss);
    EXPECT_EQ(other.sums.weight, result.sums.weight);
    EXPECT_EQ(other.evaluation.loss, result.evaluation.loss);
  }
  for (const auto& rank : ranks) {
    if (layout.sequence_parallel) break;  // each has its own rows
    EXPECT_EQ(rank->Outputs(), ranks.front()->Outputs());
  }
  for (size_t stage = 0; stage < static_cast<size_t>(layout.stages); ++stage) {
    std::vector<const ModelRig*> holders;
    for (const auto& rank : ranks) holders.push_back(rank->stages()[stage].get());
    Gather(holders, &result);
    const memory::BytesByKind& bytes = holders.front()->memory().Report();
    result.kept_bytes.push_back(bytes[static_cast<size_t>(memory::Kind::kActivations)]);
    result.workspace_bytes.push_back(bytes[static_cast<size_t>(memory::Kind::kWorkspace)]);
    for (const ModelRig* holder : holders) result.grad_bytes.push_back(holder->GradBytes());
  }
  return result;
}

void ExpectSame(const MeshResult& got, const MeshResult& want) {
  EXPECT_NEAR(got.sums.loss, want.sums.loss, 1e-12 * want.sums.loss);
  EXPECT_EQ(got.sums.weight, want.sums.weight);
  EXPECT_NEAR(got.evaluation.loss, want.evaluation.loss, 1e-12 * want.evaluation.loss);
  double largest = 0;
  for (const auto& [name, grad] : want.grads) largest = std::max(largest, Norm(grad));
  EXPECT_GT(largest, 0);
  ASSERT_EQ(got.grads.size(), want.grads.size());
  for (const auto& [name, grad] : want.grads) {
    ASSERT_TRUE(got.grads.contains(name)) << name;
    EXPECT_LE(Distance(got.grads.at(name), grad), 1e-12 * Norm(grad) + 1e-16 * largest)
        << name << ": norm " << Norm(grad);
  }
}

}  // namespace mt::model
