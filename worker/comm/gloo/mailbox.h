// Messages between two members on an edge. Each is a header with up to 4 KiB of payload, then the
// rest, which the receiver awaits only when the header agrees with its own call. The sender keeps a
// copy per message until the edge's window comes round.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "worker/comm/gloo/call_header.h"
#include "worker/comm/gloo/mesh.h"

namespace mt::comm {

class GlooMailbox {
 public:
  explicit GlooMailbox(GlooMesh* mesh) : mesh_(mesh) {}

  Status Send(const ProcessGroup::Call& call, base::MonotonicTime deadline);
  Status Recv(const ProcessGroup::Call& call, base::MonotonicTime deadline);

 private:
  struct Outgoing {
    std::vector<std::byte> bytes;      // header, payload
    std::unique_ptr<GlooBuffer> head;  // null: never used
    std::unique_ptr<GlooBuffer> rest;  // null: all of it was in the head
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
