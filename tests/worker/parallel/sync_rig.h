// A mesh of ranks as threads that take optimizer steps from synthetic gradients: every kind of
// parameter that a GPT has, sharded over tensor ranks, stages and replicas, through the real
// GradientSync and optimizer. A gradient is a function of parameter name and global index, so a
// single rank can represent a whole mesh and yield the reference values.
#pragma once

#include <cstddef>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/layout/group_axes.h"
#include "kernels/ops/backend.h"
#include "worker/comm/group_factory.h"
#include "worker/optim/optimizer.h"
#include "worker/parallel/gradient_sync.h"

namespace mt::kernels::async {
class AsyncWorld;
}

namespace mt::parallel {

struct RigLayout {
  layout::MeshSizes mesh;  // tp, dp, and pp 1 or 2
  // The mesh whose gradients these ranks share; another than `mesh` only for one rank.
  std::optional<layout::MeshSizes> stands_for;
  int zero_stage = 0;
  bool overlap = false;
  kernels::DType dtype = kernels::DType::kF64;
  optim::OptimizerConfig optimizer;
  // Ranks have asynchronous devices of this world, which must outlive them; nullptr: the CPU.
  // FillGradients, Step and FinishStep are for the CPU only.
  kernels::async::AsyncWorld* world = nullptr;
  // The devices share memory, and replicas copy from one to the other (worker/comm/copies).
  bool copies = false;
};

// Of a mesh's groups.
struct RigFactories {
  comm::GroupFactory* device = nullptr;
  comm::GroupFactory* host = nullptr;  // the same without a world
};

// One term of the sum that is a parameter's gradient.
struct Term {
  const params::ParamSpec* spec = nullptr;
  int64_t index = 0;  // global, row-major, of the logical tensor
  int64_t step = 0;
  int replica = 0;
  int tp_rank = 0;  // of partial parameters, else 0
  int stage = 0;    // of the word table, else 0
};
using GradientOf = std::function<double(const Term&)>;

// Uniform in [-1, 1), by all members of the term.
double RandomGradient(const Term& term);

class RigRank {
 public:
  RigRank(const RigLayout& layout, const kernels::StepConstants& constants, int world_rank,
          const RigFactories& factories);
  ~RigRank();

  // A whole step. Gradients are (terms + 0.01 x weight per term) x loss scale, without the weight
  // where `with_weights` is false. `poison`: added to the first element of this rank's first
  // bucket.
  Status Step(int64_t step, const GradientOf& gradient_of, bool with_weights, double poison = 0);

  // Its pieces.
  void FillGradients(int64_t step, const GradientOf& gradient_of, bool with_weights);
  Status FinishStep(double poison = 0);

  // A whole step by calls of streams alone: forward copies the weights chunk by chunk, backward
  // takes the gradients to (random terms + copied weights) and reports buckets as it goes. For f32
  // and f64, whose gradients have the type of the weights.
  Status EnqueueStep(int64_t step);
  // Copies all weights after it, as forward does.
  void ReadWeights();

  const layout::Coordinates& at() const { return at_; }
  const params::Registry& registry() const { return registry_; }
  const params::ParamStore& store() const { return *store_; }
  const memory::Memory& memory() const { return *memory_; }
  const kernels::StepScalars& scalars() const { return scalars_; }
  const kernels::EndOfStep& vector() const { return vector_; }
  kernels::Backend& backend() { return *backend_; }
  kernels::Stream& stream() { return *stream_; }
  GradientSync& sync() { return *sync_; }
  comm::ProcessGroup* dp_group() { return groups_.front().get(); }

 private:
  // nullptr where the axes give this rank no such group.
  comm::ProcessGroup* MakeGroup(layout::GroupUse use, comm::GroupFactory* factory);
  void Build(const RigFactories& factories);
  // Host memory with the bytes, for copies that run later.
  void* Kept(std::vector<std::byte> bytes);
  void EnqueueGradient(params::ParamId param, int64_t step);
  kernels::EndOfStep OwnSums() const;
  // From the buckets' reductions to the update.
  Status CompleteStep();
  std::vector<Term> TermsOf(const params::ParamSpec& spec, int64_t step) const;

  const RigLayout layout_;
  const kernels::StepConstants constants_;
  const layout::GroupAxes axes_;
  const layout::Coordinates at_;
  std::unique_ptr<kernels::Backend> cpu_;
  std::unique_ptr<kernels::Backend> async_;  // nullptr without a world
  kernels::Backend* const backend_;
  std::unique_ptr<kernels::DeviceBuffer> forward_;  // the weights that forward read
  std::list<std::vector<std::byte>> kept_;
  std::unique_ptr<kernels::Stream> stream_;
  std::unique_ptr<comm::GroupFactory> copies_;  // nullptr: replicas' groups are as the others
  std::vector<std::unique_ptr<comm::ProcessGroup>> groups_;
  params::Registry registry_;
  std::optional<params::FlatLayout> flat_;
  std::optional<params::ParamStore> store_;
  std::unique_ptr<memory::Memory> memory_;
  std::optional<GradientSync> sync_;
  std::optional<optim::Optimizer> optimizer_;
  kernels::StepScalars scalars_;
  kernels::EndOfStep vector_;
};

class RigMesh {
 public:
  RigMesh(const RigLayout& layout, const kernels::StepConstants& constants);
  ~RigMesh();
  RigMesh(const RigMesh&) = delete;
  RigMesh& operator=(const RigMesh&) = delete;

  // Calls body(rank) on one thread per rank.
  void Run(const std::function<void(RigRank&)>& body);
  // Takes steps on all ranks and waits for the weights.
  void Train(int64_t steps, const GradientOf& gradient_of, bool with_weights);

  // Steps by EnqueueStep, then waits for the device.
  void TrainEnqueued(int64_t steps);

  int size() const { return static_cast<int>(ranks_.size()); }
  RigRank& rank(int world_rank) { return *ranks_[static_cast<size_t>(world_rank)]; }

 private:
  void OnThreads(const std::function<void(int world_rank)>& body);

  kernels::async::AsyncWorld* const world_;
  std::unique_ptr<comm::GroupFactory> factory_, host_factory_;
  std::vector<std::unique_ptr<RigRank>> ranks_;
};

// Element i of any float tensor.
double ValueAt(const kernels::Tensor& tensor, int64_t i);

// Weights by name, whole and logical, put together from all ranks. EXPECTs that every element is
// there and that all who hold one have the same bits.
std::map<std::string, std::vector<double>> AssembleWeights(RigMesh& mesh);

// EXPECTs equal bits of weights and scalars, rank by rank.
void ExpectSameBits(RigMesh& a, RigMesh& b, const std::string& what);

// Constant learning rate, clipping, decay; tokens of every replica are kTokens.
kernels::StepConstants RigConstants(const layout::MeshSizes& mesh);
inline constexpr double kTokens = 6;

}  // namespace mt::parallel
