// Edges are enumerated by kind and sender stage along the rank's pipeline column, which gives all
// ranks one order.
#include "worker/parallel/pipeline/edges.h"

#include <initializer_list>
#include <utility>

#include <fmt/format.h>

namespace mt::parallel {
namespace {

using layout::Axis;

// The receiver of an edge by the sender's stage: activations go to the next stage, gradients to the
// previous one.
int ReceiverOf(EdgeKind kind, int sender, int stages) {
  return (kind == EdgeKind::kActivation ? sender + 1 : sender + stages - 1) % stages;
}

bool WrapsAround(EdgeKind kind, int sender, int stages) {
  return sender == (kind == EdgeKind::kActivation ? stages - 1 : 0);
}

comm::GroupSpec SpecOf(EdgeKind kind, int sender_rank, int receiver_rank, bool outgoing) {
  const char* prefix = kind == EdgeKind::kActivation ? "pp-act" : "pp-grad";
  return {.name = fmt::format("{}/{}-{}", prefix, sender_rank, receiver_rank),
          .members = {sender_rank, receiver_rank},
          .my_index = outgoing ? kSenderIndex : kReceiverIndex};
}

}  // namespace

std::vector<Edge> EdgesOf(const layout::Mesh& mesh, int world_rank, int chunks) {
  std::vector<Edge> edges;
  const int stages = mesh.size(Axis::kPp);
  if (stages == 1) return edges;
  const int own_stage = mesh.CoordinatesOf(world_rank).pp;
  const layout::Group column = mesh.GroupOf(world_rank, {Axis::kPp});
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
    ASSIGN_OR_RETURN(auto group, factory->Create(edge.spec));
    const bool activation = edge.kind == EdgeKind::kActivation;
    if (edge.outgoing) {
      (activation ? links.activation_out : links.gradient_out) =
          std::make_unique<Sender>(std::move(group), options.device, options.overlap);
    } else {
      (activation ? links.activation_in : links.gradient_in) =
          std::make_unique<Receiver>(std::move(group), options.device, options.overlap);
    }
  }
  return links;
}

void StageLinks::Abort(std::string_view reason) {
  for (LinkEnd* end : std::initializer_list<LinkEnd*>{activation_in.get(), activation_out.get(),
                                                      gradient_in.get(), gradient_out.get()}) {
    if (end != nullptr) end->Abort(reason);
  }
}

}  // namespace mt::parallel
