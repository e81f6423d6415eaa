// The directed edges of one rank in a mesh with a pipeline axis, and the links over them. A stage
// has up to four: activations from the stage before it and to the one after it, gradients the other
// way. With more than one chunk per stage the last stage's outputs feed the first stage's next
// chunk, so the stages form a ring; else the wrap-around edges do not exist.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/layout/mesh.h"
#include "kernels/core/device.h"
#include "worker/comm/group_factory.h"
#include "worker/parallel/pipeline/link.h"

namespace mt::pipeline {

enum class EdgeKind : uint8_t { kActivation, kGradient };

struct Edge {
  EdgeKind kind = EdgeKind::kActivation;
  bool outgoing = false;  // this rank sends
  // "pp-act/<sender>-<receiver>" or "pp-grad/...", by world ranks; members [sender, receiver].
  comm::GroupSpec spec;
};

// The edges of a rank in the order in which it must create their groups: one order for all ranks of
// the job, since a factory blocks until the other member comes. Empty where the mesh has one stage.
std::vector<Edge> EdgesOf(const layout::Mesh& mesh, int world_rank, int chunks);

// The links of a stage; null where it has no such edge.
struct StageLinks {
  std::unique_ptr<Receiver> activation_in;
  std::unique_ptr<Sender> activation_out;
  std::unique_ptr<Receiver> gradient_in;
  std::unique_ptr<Sender> gradient_out;

  // Any thread.
  void Abort(std::string_view reason);
};

struct LinkOptions {
  kernels::Device* device = nullptr;  // gives each link its stream; outlives the links
  bool overlap = true;                // parallel.overlap.pipeline
};

// Makes the groups and the links of a rank; every rank of the job calls it, at the same place among
// its other groups. Errors are the factory's.
StatusOr<StageLinks> CreateLinks(comm::GroupFactory* factory, const layout::Mesh& mesh,
                                 int world_rank, int chunks, const LinkOptions& options);

}  // namespace mt::pipeline
