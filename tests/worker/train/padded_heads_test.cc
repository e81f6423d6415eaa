// Heads stored larger than they are, as on GPUs, by the CPU's ops: the same training to rounding,
// the same checkpoints, zeros that stay zero. Jobs are resolved for GPUs and run on the CPU in
// fp64.
#include <algorithm>
#include <cstring>
#include <map>

#include <fmt/format.h>

#include "common/base/files.h"
#include "common/spec/derived.h"
#include "tests/worker/train/train_rig.h"
#include "worker/checkpoint/format/whole_manifest.h"
#include "worker/params/state_parts.h"

namespace mt::train {
namespace {

using megatrain::v1::JobSpec;
using params::ParamId;
using params::ParamSpec;

enum class Heads : uint8_t { kPlain, kPadded };

std::vector<std::string> Joined(std::vector<std::string> fields,
                                const std::vector<std::string>& more) {
  fields.insert(fields.end(), more.begin(), more.end());
  return fields;
}

// GPT-2's bias and positions, heads of 6; rotated heads of 10 with norms, two queries to a key.
const std::vector<std::string> kGpt = {"model.layers=4", "model.heads=4", "model.head_dim=6"};
const std::vector<std::string> kLlama = {"model.layers=4",       "model.heads=4",
                                         "model.kv_heads=2",     "model.head_dim=10",
                                         "model.position=rope",  "model.qk_norm=true",
                                         "model.norm=rmsnorm",   "model.norm_one_plus=true",
                                         "model.ffn_size=32",    "model.activation=swiglu",
                                         "model.qkv_bias=false", "model.tie_embeddings=false"};
const std::vector<std::string> kPlane = {"parallel.tensor=2", "parallel.pipeline=2"};

class PaddedHeadsTest : public TrainTest {
 protected:
  std::vector<RankOutcome> RunWith(Heads heads, const std::vector<std::string>& fields) {
    JobSpec job = TinyJob(fields);
    if (heads == Heads::kPadded) {
      job.mutable_placement()->set_device(megatrain::v1::Placement::DEVICE_GPU);
      EXPECT_EQ(spec::StoredHeadDim(job), 16);
    }
    std::vector<RankOutcome> outcomes =
        RunJob(job, {.root = dir_.path(), .adjust = [this](int rank, TrainArgs* args) {
                       if (adjust_) adjust_(rank, args);
                     }});
    for (const RankOutcome& rank : outcomes) {
      EXPECT_TRUE(rank.result.status.ok()) << rank.result.status;
    }
    return outcomes;
  }
  // Digest of each tensor's slices, by key and offset.
  std::map<std::string, std::string> Digests(const std::string& directory) const {
    const std::string path = base::JoinPath(dir_.path(), "checkpoints/" + directory);
    std::map<std::string, std::string> digests;
    for (const checkpoint::CheckpointId& id : OnDisk(directory)) {
      const checkpoint::Manifest manifest = checkpoint::ReadWholeManifest(path, id).value();
      for (const auto& [key, tensor] : manifest.tensors) {
        for (const auto& slice : tensor.slices) {
          std::string& text = digests[fmt::format("{} {}+{}", key, slice.offset[0],
                                                  slice.offset.size() > 1 ? slice.offset[1] : 0)];
          for (const auto& digest : slice.digests) text += base::HexOf(digest);
        }
      }
    }
    EXPECT_FALSE(digests.empty()) << directory;
    return digests;
  }
};

// Fields of a run that stops after `step` with a save.
std::vector<std::string> StopsAt(int64_t step, const std::string& directory) {
  return {fmt::format("training.exit_at_iter={}", step), "checkpoint.at_end=true",
          "checkpoint.directory=" + directory};
}

TEST_F(PaddedHeadsTest, CurvesAreThoseOfUnpaddedHeads) {
  for (const std::vector<std::string>& model : {kGpt, kLlama}) {
    const std::vector<std::string> fields = Joined(model, {"checkpoint.directory=none"});
    const Observed plain = RunWith(Heads::kPlain, fields)[0].seen;
    ASSERT_EQ(plain.steps.size(), 20U);
    EXPECT_LT(plain.steps.back().loss(), plain.steps.front().loss()) << "it learns";
    for (const auto& layout : {std::vector<std::string>{}, kPlane, CubeLayout()}) {
      const Observed padded = RunWith(Heads::kPadded, Joined(fields, layout))[0].seen;
      ExpectSameCurve(padded.steps, plain.steps, 1e-12, 1e-12);
      EXPECT_EQ(padded.infos.at(0).parameters, plain.infos.at(0).parameters);
      EXPECT_EQ(padded.steps.back().model_flops(), plain.steps.back().model_flops());
      if (!layout.empty()) continue;
      const auto weights = static_cast<size_t>(memory::Kind::kWeights);
      EXPECT_GT(MemoryOf(padded.steps[0])[weights], MemoryOf(plain.steps[0])[weights]);
    }
  }
}

// Bytes of a flat tensor that belong to no element of a box.
int64_t NonZeroBytesBetween(const base::Runs& places, int64_t count, const kernels::Tensor& flat) {
  const auto* const bytes = static_cast<const char*>(flat.data);
  std::vector<char> copy(bytes, bytes + flat.Bytes());
  const int64_t element_bytes = SizeOf(flat.dtype);
  const std::vector<char> zeros(static_cast<size_t>(count * element_bytes), 0);
  base::CopyToRuns(places, count, element_bytes, zeros.data(), copy.data());
  return static_cast<int64_t>(copy.size()) - std::count(copy.begin(), copy.end(), 0);
}

// Weights and gradients of all heads, and what this replica keeps of their state; returns how many
// padded elements were looked at.
int64_t ExpectZeroPadding(const params::ParamStore& store) {
  int64_t padding = 0;
  const auto expect = [&](const base::Runs& places, int64_t count, const kernels::Tensor& flat,
                          const std::string& name) {
    padding += flat.NumElements() - count;
    EXPECT_EQ(NonZeroBytesBetween(places, count, flat), 0) << name;
  };
  for (int32_t i = 0; i < static_cast<int32_t>(store.registry().size()); ++i) {
    const ParamSpec& spec = store.registry()[ParamId{i}];
    const int64_t held = spec.Held().NumElements();
    expect(spec.Places(), held, store.Weight(ParamId{i}), spec.name);
    expect(spec.Places(), held, store.Grad(ParamId{i}), spec.name + " gradient");
    for (const params::StatePart& part :
         params::StateParts(store, ParamId{i}, params::PartsOf::kUpdatedState)) {
      const int64_t count = part.shape.NumElements();
      expect(part.places, count, part.master, spec.name + " master");
      expect(part.places, count, part.m, spec.name + " first moment");
      expect(part.places, count, part.v, spec.name + " second moment");
    }
  }
  return padding;
}

TEST_F(PaddedHeadsTest, PaddingStaysZero) {
  std::vector<int64_t> looked_at(8, 0);
  adjust_ = [&](int rank, TrainArgs* args) {
    args->after_step = [&looked_at, rank](int64_t step, const params::ParamStore& store) {
      if (step % 5 == 0) looked_at[static_cast<size_t>(rank)] += ExpectZeroPadding(store);
    };
  };
  for (const char* precision : {"training.precision=fp64", "training.precision=bf16"}) {
    for (const std::vector<std::string>& model : {kGpt, kLlama}) {
      RunWith(Heads::kPadded,
              Joined(Joined(model, CubeLayout()),
                     {precision, "training.train_iters=10", "checkpoint.directory=none"}));
    }
  }
  for (const int64_t elements : looked_at) EXPECT_GT(elements, 10'000);
}

TEST_F(PaddedHeadsTest, CheckpointsHaveNoPadding) {
  adjust_ = [](int, TrainArgs* args) {  // one job, which ends at once where it has reached its exit
    args->job_uid = "job";
    args->epoch = 1;
  };
  for (const auto& [from, to] :
       {std::pair(Heads::kPlain, Heads::kPadded), std::pair(Heads::kPadded, Heads::kPlain)}) {
    const std::string name = from == Heads::kPlain ? "plain" : "padded";
    const std::vector<std::string> fields = Joined(kLlama, kPlane);
    RunWith(from, Joined(fields, StopsAt(3, name)));
    // Ends at once, with a save of what it has loaded.
    RunWith(to, Joined(Joined(fields, StopsAt(3, name + "-copy")), {"checkpoint.load=" + name}));
    EXPECT_EQ(Digests(name + "-copy"), Digests(name)) << name;
  }
}

// What the first step starts from: one step at a learning rate of 0 leaves it.
TEST_F(PaddedHeadsTest, InitialValuesAreTheSameBits) {
  for (const std::vector<std::string>& model : {kGpt, kLlama}) {
    const std::vector<std::string> fields =
        Joined(model, {"optimizer.lr=0", "optimizer.min_lr=0", "optimizer.weight_decay=0"});
    std::map<std::string, std::string> weights[2];
    for (const Heads heads : {Heads::kPlain, Heads::kPadded}) {
      const std::string name =
          fmt::format("start-{}-{}", model == kGpt ? "gpt" : "llama", static_cast<int>(heads));
      RunWith(heads, Joined(fields, StopsAt(1, name)));
      for (const auto& [key, digest] : Digests(name)) {
        if (key.starts_with("weights/")) weights[static_cast<int>(heads)][key] = digest;
      }
    }
    EXPECT_FALSE(weights[0].empty());
    EXPECT_EQ(weights[0], weights[1]);
  }
}

TEST_F(PaddedHeadsTest, ARunGoesOnWithOtherHeads) {
  const std::vector<std::string> fields = Joined(kLlama, CubeLayout());
  const Observed straight =
      RunWith(Heads::kPlain, Joined(fields, {"checkpoint.directory=none"}))[0].seen;
  for (const auto& [from, to] :
       {std::pair(Heads::kPlain, Heads::kPadded), std::pair(Heads::kPadded, Heads::kPlain)}) {
    const std::string name = from == Heads::kPlain ? "from-plain" : "from-padded";
    RunWith(from, Joined(fields, StopsAt(10, name)));
    const Observed rest = RunWith(to, Joined(fields, {"checkpoint.directory=" + name}))[0].seen;
    ASSERT_EQ(rest.infos.at(0).resumed_from_step, 10);
    ExpectSameCurve(rest.steps, {straight.steps.begin() + 10, straight.steps.end()}, 1e-12, 1e-12);
  }
}

}  // namespace
}  // namespace mt::train
