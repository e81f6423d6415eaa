// Point-to-point messages between two members on an edge. A message is a header with up to 4 KiB of
// payload, followed by the rest, which the receiver accepts only if the header matches its own
// call. The sender keeps a copy of each message until kSendWindow later ones were sent on the edge.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "worker/comm/call_header.h"
#include "worker/comm/gloo/mesh.h"

namespace mt::comm {

// A message's payload up to this size travels with its header.
inline constexpr int64_t kInlineBytes = 4096;

// Used by the group's thread. Errors are those of GlooMesh's waits, and kFailedPrecondition where
// the two ends' calls differ.
class GlooMailbox {
 public:
  explicit GlooMailbox(GlooMesh* mesh) : mesh_(mesh) {}

  // Returns once the message is copied; blocks while the edge's window is full.
  Status Send(const ProcessGroup::Call& call, base::MonotonicTime deadline);
  // Blocks until the message is in call.out.
  Status Recv(const ProcessGroup::Call& call, base::MonotonicTime deadline);

 private:
  struct Outgoing {
    std::vector<std::byte> bytes;      // header and payload
    std::unique_ptr<GlooBuffer> head;  // null: never used
    std::unique_ptr<GlooBuffer> rest;  // null: the head holds everything
  };
  struct Outbox {
    std::array<Outgoing, ProcessGroup::kSendWindow> messages;
    uint64_t num_sent = 0;
  };
  using PeerEdge = std::pair<int, int>;

  GlooMesh* const mesh_;
  std::map<PeerEdge, Outbox> outboxes_;
  std::map<PeerEdge, uint64_t> num_received_;
};

}  // namespace mt::comm
