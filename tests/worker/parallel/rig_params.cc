// Two chunks of layers, the word table at both ends of a pipeline, vectors and matrices of each
// cut.
#include "tests/worker/parallel/rig_params.h"

#include <fmt/format.h>

namespace mt::parallel {
namespace {

using params::InitKind;
using params::ParamSpec;
using params::Region;

constexpr int64_t kHidden = 32;
constexpr int64_t kInner = 64;
constexpr int64_t kVocab = 50;
constexpr int64_t kPaddedVocab = 64;
constexpr int kLayers = 4;
// Adds parameters as one rank of a mesh holds them.
class PartBuilder {
 public:
  PartBuilder(params::Registry* registry, const layout::MeshSizes& mesh,
              const layout::Coordinates& at)
      : registry_(registry), mesh_(mesh), at_(at) {}

  void AddAll() {
    if (at_.pp == 0) {
      AddWordTable(0, /*copy=*/false);
      Add("embedding.position.weight", {16, kHidden}, Region::kPositionTable);
    }
    // Stages take turns, as chunks of an interleaved pipeline do.
    for (int i = at_.pp; i < kLayers; i += mesh_.pp) AddLayer(i, i >= kLayers / 2 ? 1 : 0);
    if (mesh_.pp > 1 && at_.pp == mesh_.pp - 1) AddWordTable(1, /*copy=*/true);
  }

 private:
  void Add(const std::string& name, kernels::Shape shape, Region region, int cut_dim = -1,
           bool joined = false) {
    ParamSpec spec{.name = name, .shape = shape, .stored = shape, .region = region};
    if (cut_dim == 0) {
      const int64_t rows = shape[0] / mesh_.tp;
      spec.stored = shape.rank() == 2 ? kernels::Shape{rows, shape[1]} : kernels::Shape{rows};
      spec.begin[0] = rows * at_.tp;
    } else if (cut_dim == 1) {
      spec.by_columns = true;
      spec.stored = {shape[0], shape[1] / mesh_.tp};
      spec.begin[1] = spec.stored[1] * at_.tp;
    }
    spec.init = name.ends_with(".bias") ? InitKind::kZero
                : shape.rank() == 1     ? InitKind::kOne
                                        : InitKind::kNormal;
    spec.std = 0.02;
    spec.decay = params::DecaysByMegatronRule(name, shape);
    spec.layer = layer_;
    spec.chunk = chunk_;
    spec.partial = mesh_.tp > 1 && IsPartial(name);
    spec.joined = joined;
    registry_->Add(spec);
  }

  void AddWordTable(int chunk, bool copy) {
    const int64_t rows = kPaddedVocab / mesh_.tp;
    registry_->Add({.name = kWordEmbedding,
                    .shape = {kVocab, kHidden},
                    .stored = {rows, kHidden},
                    .begin = {rows * at_.tp, 0},
                    .region = Region::kWordEmbedding,
                    .init = InitKind::kNormal,
                    .std = 0.02,
                    .decay = true,
                    .chunk = chunk,
                    .copy = copy});
  }

  void AddLayer(int layer, int chunk) {
    layer_ = layer;
    chunk_ = chunk;
    const std::string prefix = fmt::format("layers.{}.", layer);
    Add(prefix + "norm.weight", {kHidden}, Region::kReplicatedVector);
    // So long that tensor ranks own different parts of its sum.
    Add(prefix + "wide_norm.weight", {600}, Region::kReplicatedVector);
    Add(prefix + "q.weight", {kInner, kHidden}, Region::kMatrix, 0);
    Add(prefix + "k.weight", {kInner, kHidden}, Region::kMatrix, 0, true);
    Add(prefix + "v.weight", {kInner, kHidden}, Region::kMatrix, 0, true);
    Add(prefix + "q.bias", {kInner}, Region::kShardedVector, 0);
    Add(prefix + "out.weight", {kHidden, kInner}, Region::kMatrix, 1);
    Add(prefix + "out.bias", {kHidden}, Region::kReplicatedVector);
  }

  params::Registry* registry_;
  const layout::MeshSizes mesh_;
  const layout::Coordinates at_;
  int layer_ = -1;
  int chunk_ = 0;
};

}  // namespace

bool IsPartial(const std::string& name) { return name.ends_with("norm.weight"); }

void AddRigParams(params::Registry* registry, const layout::MeshSizes& mesh,
                  const layout::Coordinates& at) {
  PartBuilder(registry, mesh, at).AddAll();
}

}  // namespace mt::parallel
