// A member of a group whose ranks are processes, over a GlooMesh. Every collective begins with an
// opening, a header that the receivers compare with their own call. Payloads of up to 4 KiB travel
// in the opening to all members and are combined there, without a ring; larger ones go by ring.h
// after an opening from the left neighbour. Both paths add in reduce.h's order.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "worker/comm/gloo/call_header.h"
#include "worker/comm/gloo/mailbox.h"
#include "worker/comm/gloo/mesh.h"
#include "worker/comm/gloo/ring.h"
#include "worker/comm/process_group.h"

namespace mt::comm {

class GlooGroup final : public ProcessGroup {
 public:
  // `mesh` connects the members of `spec`.
  GlooGroup(GroupSpec spec, CommConfig config, std::unique_ptr<GlooMesh> mesh);

 private:
  // What one peer sends ahead of its data. Two receives take turns, so that the next opening finds
  // one posted while this one is read.
  struct Inbox {
    std::array<std::vector<std::byte>, 2> bytes;
    std::array<std::unique_ptr<GlooBuffer>, 2> buffers;
    int posted = 0;      // which of the two
    Status post_status;  // of the last post: an error is due when the opening is
  };

  Status DoCall(kernels::Stream& stream, const Call& call, base::MonotonicTime deadline) override;
  void OnBroken() override { mesh_->Break(); }

  // What each member contributes to an opening of a call that needs no ring; -1: needs one.
  int64_t InlineBytes(const Call& call) const;
  Status SmallCollective(const Call& call, int64_t bytes, base::MonotonicTime deadline);
  void CombineSmall(const Call& call, const std::vector<const void*>& payloads);
  Status BulkCollective(const Call& call, base::MonotonicTime deadline);
  Status BulkAllReduce(const Transfer& transfer, const Call& call);

  // Sends this member's opening, with `bytes` of its input, to `receivers`; EndOpening waits until
  // they have gone.
  Status SendOpening(const Call& call, int64_t bytes, const std::vector<int>& receivers);
  Status EndOpening(const std::vector<int>& receivers, base::MonotonicTime deadline);
  // Awaits the openings of `senders` and compares them; payload(peer) is then valid until the end
  // of the call.
  Status TakeOpenings(const Call& call, const std::vector<int>& senders,
                      base::MonotonicTime deadline);
  const std::byte* payload(int peer) const;
  void PostInbox(int peer);
  std::vector<int> Peers() const;

  const std::unique_ptr<GlooMesh> mesh_;
  GlooMailbox mailbox_;
  uint64_t num_collectives_ = 0;
  const int64_t inline_limit_;                         // bytes
  std::vector<std::byte> outbox_;                      // this member's opening
  std::vector<std::unique_ptr<GlooBuffer>> openings_;  // by peer: all over outbox_
  std::vector<Inbox> inboxes_;                         // by peer
  std::vector<std::byte> scratch_;                     // [kScratchBytes] from the first bulk call
};

}  // namespace mt::comm
