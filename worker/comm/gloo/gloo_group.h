// A process group over a GlooMesh. Every collective begins with an opening, a header that receivers
// compare with their own call. Small payloads travel in the opening to all members and are combined
// by each, in one network step; larger ones follow by the algorithms of ring.h. Both paths add in
// the order of reduce.h, so they give the same bits.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "worker/comm/call_header.h"
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
  // The receive buffers for one peer's openings. Two alternate, so that the receive of the next
  // opening is already posted while the current one is read.
  struct Inbox {
    std::array<std::vector<std::byte>, 2> bytes;
    std::array<std::unique_ptr<GlooBuffer>, 2> buffers;
    int posted = 0;      // index of the posted one
    Status post_status;  // of the last post; reported when the opening is awaited
  };

  Status DoCall(kernels::Stream& stream, const Call& call, base::MonotonicTime deadline) override;
  void OnBroken() override { mesh_->Break(); }

  // Bytes that a member contributes to the opening of a small call, or -1 if the call is too large
  // for it.
  int64_t InlineBytes(const Call& call) const;
  Status SmallCollective(const Call& call, int64_t bytes, base::MonotonicTime deadline);
  void CombineSmall(const Call& call, const std::vector<const void*>& payloads);
  Status BulkCollective(const Call& call, base::MonotonicTime deadline);
  Status BulkAllReduce(const Transfer& transfer, const Call& call);

  // Posts this member's opening, with `bytes` of its input, to `receivers`. EndOpening blocks until
  // all have been sent.
  Status SendOpening(const Call& call, int64_t bytes, const std::vector<int>& receivers);
  Status EndOpening(const std::vector<int>& receivers, base::MonotonicTime deadline);
  // Blocks until the openings of `senders` have arrived and compares them with `call`
  // (kFailedPrecondition). payload(peer) is valid until the end of the call.
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
  std::vector<std::unique_ptr<GlooBuffer>> openings_;  // [peer], each a send handle on outbox_
  std::vector<Inbox> inboxes_;                         // [peer]
  std::vector<std::byte> scratch_;  // [kScratchBytes], allocated by the first bulk call
};

}  // namespace mt::comm
