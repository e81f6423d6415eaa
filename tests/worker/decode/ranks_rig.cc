// Groups are those of threads of this process; a rank's weights are cut out of the whole ones.
#include "tests/worker/decode/ranks_rig.h"

#include <cstdint>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "worker/comm/threads/hub.h"
#include "worker/decode/network_part.h"
#include "worker/decode/weight_source.h"
#include "worker/parallel/tensor_parallel.h"

namespace mt::decode {

using model::GptConfig;
using model::GptModel;

namespace {

// The chunks of a stage. Of more positions than layers some only pass their input on, and the head
// may be alone.
std::vector<GptModel::Chunk> ChunksOf(const GptConfig& config, const Layout& layout, int stage) {
  const int positions = layout.stages * layout.chunks;
  std::vector<GptModel::Chunk> chunks;
  for (int at = stage; at < positions; at += layout.stages) {
    const int64_t begin = config.layers * at / positions;
    const int64_t end = config.layers * (at + 1) / positions;
    chunks.push_back({.place = {.stage = stage,
                                .chunk = at / layout.stages,
                                .first_layer = begin,
                                .num_layers = end - begin,
                                .has_embedding = at == 0,
                                .has_head = at + 1 == positions}});
  }
  return chunks;
}

// Gives a rank's rig the part that it stores of the weights of a rig that has all.
void TakeWeights(const model::ModelRig& whole, model::ModelRig* part) {
  for (const params::ParamId id : part->Ids()) {
    const params::ParamSpec& spec = part->registry()[id];
    const params::ParamId from = whole.IdOf(spec.name);
    const std::vector<double> all = whole.Weight(from);
    const base::Runs all_places = whole.registry()[from].Places();
    const base::Runs places = spec.Places();
    const kernels::Shape held = spec.Held();
    const int64_t columns = held.rank() == 2 ? held[1] : 1;
    const int64_t all_columns = held.rank() == 2 ? spec.shape[1] : 1;
    std::vector<double> values = part->Weight(id);
    for (int64_t i = 0; i < held.NumElements(); ++i) {
      const int64_t element =
          (spec.begin[0] + i / columns) * all_columns + spec.begin[1] + i % columns;
      values[static_cast<size_t>(places.At(i))] = all[static_cast<size_t>(all_places.At(element))];
    }
    part->SetWeight(id, values);
  }
}

}  // namespace

const std::vector<Layout>& Layouts() {
  static const std::vector<Layout> all = {{"tp2", 2, 1, 1},        {"pp2", 1, 2, 1},
                                          {"tp2_pp2", 2, 2, 1},    {"pp3", 1, 3, 1},
                                          {"pp2_of_two", 1, 2, 2}, {"tp2_pp2_of_three", 2, 2, 3}};
  return all;
}

void RunRanks(const model::ModelRig& whole, const GptConfig& config, const Layout& layout,
              const std::function<void(const Rank&)>& body) {
  comm::ThreadsHub hub(comm::CommConfig{});
  const auto group = [&hub](const std::string& name, int first, int count, int index) {
    std::vector<int> members;
    for (int i = 0; i < count; ++i) members.push_back(first + i);
    return hub.Create({.name = name, .members = members, .my_index = index}).value();
  };
  const auto run = [&](int number) {
    const int stage = number / layout.tp, tensor_rank = number % layout.tp;
    const int first = stage * layout.tp;
    const auto shares = group(fmt::format("tp/{}", first), first, layout.tp, tensor_rank);
    const auto together = group("decode/0", 0, layout.ranks(), number);
    parallel::TensorParallel tensor(shares.get(), /*sequence_parallel=*/false);
    GptConfig own = config;
    own.shard = {.rank = tensor_rank, .size = layout.tp};
    const std::vector<GptModel::Chunk> chunks = ChunksOf(config, layout, stage);
    model::ModelRig rig(own, {.chunks = chunks, .tensor = &tensor});
    TakeWeights(whole, &rig);
    const TrainedWeights weights(&rig.store());
    const auto stream = rig.backend().device().CreateStream(kernels::StreamPriority::kLow);
    DecodeModel::Args args{.config = TrainedDecodeConfig(own, config.seq),
                           .sequences = 3,
                           .memory_limit_bytes = int64_t{1} << 32,
                           .backend = &rig.backend(),
                           .stream = stream.get(),
                           .trained = &weights};
    args.part = {.stages = layout.stages, .tensor = &tensor, .ranks = together.get()};
    for (const GptModel::Chunk& chunk : chunks) args.part.chunks.push_back(chunk.place);
    const auto model = DecodeModel::Make(args);
    ASSERT_TRUE(model.ok()) << model.status();
    body({model->get(), together.get(), number});
  };
  std::vector<std::thread> threads;
  for (int number = 0; number < layout.ranks(); ++number) threads.emplace_back(run, number);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace mt::decode
