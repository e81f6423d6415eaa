// Edges are enumerated by kind and sender stage along the rank's pipeline column, which gives all
// ranks one order.
#include "worker/parallel/pipeline/edges.h"

#include <string>
#include <utility>

#include <fmt/format.h>

#include "common/base/log.h"
#include "common/layout/group_axes.h"
#include "worker/parallel/pipeline/host_link.h"
#include "worker/parallel/pipeline/peer_link.h"
#include "worker/parallel/pipeline/stream_link.h"

namespace mt::parallel {
namespace {

// The receiver of an edge by the sender's stage: activations go to the next stage, gradients to the
// previous one.
int ReceiverOf(EdgeKind kind, int sender, int stages) {
  return (kind == EdgeKind::kActivation ? sender + 1 : sender + stages - 1) % stages;
}

bool WrapsAround(EdgeKind kind, int sender, int stages) {
  return sender == (kind == EdgeKind::kActivation ? stages - 1 : 0);
}

comm::GroupSpec SpecOf(EdgeKind kind, int sender_rank, int receiver_rank, bool outgoing) {
  const std::string_view use =
      kind == EdgeKind::kActivation ? layout::kActivationLink : layout::kGradientLink;
  return {.name = fmt::format("{}/{}-{}", use, sender_rank, receiver_rank),
          .members = {sender_rank, receiver_rank},
          .my_index = outgoing ? kSenderIndex : kReceiverIndex};
}

// One end of an edge: where the device enqueues a peer's if both ends can write each other's
// memory, else over the groups of the device; on CPU slots over those of the host.
template <class End, class Host, class Peer, class OverStream>
StatusOr<std::unique_ptr<End>> MakeEnd(comm::GroupFactory* factory, const comm::GroupSpec& spec,
                                       const LinkOptions& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<comm::ProcessGroup> group, factory->Create(spec));
  if (options.on_device == nullptr) {
    return std::make_unique<Host>(std::move(group), options.device, options.overlap);
  }
  std::string why_not;
  ASSIGN_OR_RETURN(PeerEnd met, MeetPeer(std::move(group), options.device, &why_not));
  met.watch = options.on_device->watch();
  if (met.peer_word != nullptr) return std::make_unique<Peer>(std::move(met), options.device);
  if (!why_not.empty()) {
    log::Warn("stages of one host send to each other by NCCL, which is slower",
              {{"link", spec.name}, {"why", why_not}});
  }
  ASSIGN_OR_RETURN(auto on_device, options.on_device->Create(spec));
  auto end = std::make_unique<OverStream>(std::move(on_device), options.device);
  RETURN_IF_ERROR(end->WarmUp());
  return end;
}

}  // namespace

std::vector<Edge> EdgesOf(const layout::Mesh& mesh, int world_rank, int chunks) {
  std::vector<Edge> edges;
  const int stages = mesh.GroupSize(layout::kStageAxes);
  if (stages == 1) return edges;
  const int own_stage = mesh.RankInGroup(world_rank, layout::kStageAxes);
  const layout::Group column = mesh.GroupOf(world_rank, layout::kStageAxes);
  for (const EdgeKind kind : {EdgeKind::kActivation, EdgeKind::kGradient}) {
    for (int sender = 0; sender < stages; ++sender) {
      const int receiver = ReceiverOf(kind, sender, stages);
      if (own_stage != sender && own_stage != receiver) continue;
      if (chunks == 1 && WrapsAround(kind, sender, stages)) continue;
      const bool outgoing = own_stage == sender;
      edges.push_back({.kind = kind,
                       .outgoing = outgoing,
                       .spec = SpecOf(kind, column[static_cast<size_t>(sender)],
                                      column[static_cast<size_t>(receiver)], outgoing)});
    }
  }
  return edges;
}

StatusOr<StageLinks> CreateLinks(comm::GroupFactory* factory, const layout::Mesh& mesh,
                                 int world_rank, int chunks, const LinkOptions& options) {
  StageLinks links;
  for (const Edge& edge : EdgesOf(mesh, world_rank, chunks)) {
    const bool activation = edge.kind == EdgeKind::kActivation;
    if (edge.outgoing) {
      auto& end = activation ? links.activation_out : links.gradient_out;
      ASSIGN_OR_RETURN(end, (MakeEnd<Sender, HostSender, PeerSender, StreamSender>(
                                factory, edge.spec, options)));
      links.made.push_back(end.get());
    } else {
      auto& end = activation ? links.activation_in : links.gradient_in;
      ASSIGN_OR_RETURN(end, (MakeEnd<Receiver, HostReceiver, PeerReceiver, StreamReceiver>(
                                factory, edge.spec, options)));
      links.made.push_back(end.get());
    }
  }
  return links;
}

void StageLinks::Abort(std::string_view reason) {
  for (LinkEnd* const end : Ends()) {
    if (end != nullptr) end->Abort(reason);
  }
}

void StageLinks::Close() {
  try {
    // First all let go: of a ring, every stage would wait for the one before it.
    for (LinkEnd* const end : Ends()) {
      if (end != nullptr) end->Detach();
    }
    for (LinkEnd* const end : Ends()) {
      if (end != nullptr) end->AwaitPeer();
    }
  } catch (const kernels::DeviceError& error) {
    log::Warn("links are left to the device, which has failed", {{"why", error.what()}});
  }
}

void StageLinks::Free() {
  for (const LinkEnd* const next : std::exchange(made, {})) {
    if (next == activation_in.get()) activation_in.reset();
    if (next == activation_out.get()) activation_out.reset();
    if (next == gradient_in.get()) gradient_in.reset();
    if (next == gradient_out.get()) gradient_out.reset();
  }
  activation_in.reset();
  activation_out.reset();
  gradient_in.reset();
  gradient_out.reset();
}

}  // namespace mt::parallel
