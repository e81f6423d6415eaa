// The directed edges between one rank and its neighbours in the pipeline, and the links over them.
// A stage has up to four: activations from the previous stage and to the next one, gradients in the
// other direction. With more than one chunk per stage the last stage's output feeds the first
// stage's next chunk, so the stages form a ring; otherwise the wrap-around edges do not exist.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/layout/mesh.h"
#include "kernels/core/device.h"
#include "worker/comm/group_factory.h"
#include "worker/parallel/pipeline/link.h"

namespace mt::parallel {

enum class EdgeKind : uint8_t { kActivation, kGradient };

// One directed edge, as this rank sees it.
struct Edge {
  EdgeKind kind = EdgeKind::kActivation;
  bool outgoing = false;  // true: this rank is the sender
  // "pp-act/<sender>-<receiver>" or "pp-grad/...", by world ranks; members [sender, receiver].
  comm::GroupSpec spec;
};

// The edges of a rank in the order in which it must create their groups. All ranks of the job use
// the same order, because a factory blocks until the other member comes. Empty if the mesh has one
// stage.
std::vector<Edge> EdgesOf(const layout::Mesh& mesh, int world_rank, int chunks);

// The links of a stage; null where it has no such edge.
struct StageLinks {
  std::unique_ptr<Receiver> activation_in;
  std::unique_ptr<Sender> activation_out;
  std::unique_ptr<Receiver> gradient_in;
  std::unique_ptr<Sender> gradient_out;

  // Aborts all links. Any thread.
  void Abort(std::string_view reason);
  // Ends all links, so that the memory of what they carried may be freed: waits until the peers do
  // the same, unless a link is broken.
  void Close();
  // Ends what the links communicate by, in the order in which all ranks have made theirs: a NCCL
  // communicator ends when both members end it, and a ring of stages would wait in a circle.
  void Free();

  std::vector<const LinkEnd*> made;  // by CreateLinks, in this order

 private:
  std::array<LinkEnd*, 4> Ends() const {
    return {activation_in.get(), activation_out.get(), gradient_in.get(), gradient_out.get()};
  }
};

struct LinkOptions {
  kernels::Device* device = nullptr;  // creates each link's streams; must outlive the links
  bool overlap = true;                // parallel.overlap.pipeline; of CPU slots
  // Where the device enqueues: of groups that take its memory, for neighbours that cannot write
  // each other's, and the watch over those that can. nullptr elsewhere.
  comm::GroupFactory* on_device = nullptr;
};

// Creates the groups and links of a rank. Blocks until all neighbours have come; every rank of the
// job must call it at the same place among its other groups. Errors are the factory's.
// `factory`: of groups of the host's memory.
StatusOr<StageLinks> CreateLinks(comm::GroupFactory* factory, const layout::Mesh& mesh,
                                 int world_rank, int chunks, const LinkOptions& options);

}  // namespace mt::parallel
