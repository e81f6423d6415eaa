// Links between GPUs of one host that write each other's memory. The sender's copy engine writes a
// parcel straight into the receiver's slot and then stores the number of parcels that have arrived
// in a word of the receiver's memory, for which the receiver's compute stream waits; the receiver
// stores the number of parcels that have a free slot in a word of the sender's memory. No thread
// block and no host waits for a parcel. Source: docs/design/gpu-engine.md#links.
//
// The hosts talk once per kind of pass: the receiver names the places of its parcels.
//
// A stream that waits for a peer is known to the device alone. A watch, if there is one, breaks a
// link whose newest wait is not over `op_timeout` of its host group after it was enqueued and after
// the own word was last seen to move, with kDeadlineExceeded and the rank that is behind.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "worker/comm/device_watch.h"
#include "worker/parallel/pipeline/link.h"

namespace mt::parallel {

// What the two ends of a link have, and how they come to it.
struct PeerEnd {
  // Host words between the ends; members [sender, receiver].
  std::unique_ptr<comm::ProcessGroup> host;
  std::unique_ptr<kernels::DeviceBuffer> word;       // of this end, which the peer stores
  std::unique_ptr<kernels::DeviceBuffer> peer_word;  // the peer's, mapped
  comm::DeviceWatch* watch = nullptr;                // outlives the end; nullptr: none looks
};

// Makes a link's end if both ends have a path to each other; else peer_word stays empty, on both,
// and *why_not says what is missing ("" where they are on different hosts). Blocks until the peer
// has answered; errors are the group's.
StatusOr<PeerEnd> MeetPeer(std::unique_ptr<comm::ProcessGroup> host, kernels::Device* device,
                           std::string* why_not);

// The common part: the stream on which a link's words and copies go, and the end of all waits. What
// the peer had enqueued by then may store its word once more, so that waits of this end are sure to
// be over once the peer has broken its end as well or, where it has died, at the next Look.
class PeerLinkEnd : private comm::DeviceWatch::Watched {
 public:
  // Breaks the link if its newest wait is late; of a broken one, ends all waits once more. Any
  // thread.
  void Look(base::MonotonicTime now) override LOCKS_EXCLUDED(mu_);

 protected:
  PeerLinkEnd(PeerEnd end, kernels::Device* device);
  // The last thing in a constructor, the first in a destructor. A broken end lets go of the peer's
  // word while it is still watched: that may wait for the device, and a store of a peer that has
  // died may still take back the end of a wait there.
  void Watch();
  void Unwatch() LOCKS_EXCLUDED(mu_);
  // What `stream` is given from now on finds the own word at `value` or beyond.
  void Await(kernels::Stream& stream, uint32_t value) LOCKS_EXCLUDED(mu_);
  // Stores the peer's word in the order of `stream`; nothing once the end is broken.
  void Store(kernels::Stream& stream, uint32_t value) LOCKS_EXCLUDED(mu_);
  void Break(std::string_view reason) LOCKS_EXCLUDED(mu_);
  // The group is broken: ends all waits.
  void EndAllWaits() LOCKS_EXCLUDED(mu_);
  // `latest`, `value`: of the latest store of the peer's word.
  void EndWaits(size_t latest, uint32_t value) LOCKS_EXCLUDED(mu_);
  // The newest wait is late: breaks the link and says for which parcel it waits.
  void BreakLate(uint32_t awaited, uint32_t reached) LOCKS_EXCLUDED(mu_);
  // How far the own word has come by now.
  uint32_t Reached();
  // Sets the own word at once.
  void StoreNow(uint32_t value);
  uint32_t* word() const { return static_cast<uint32_t*>(end_.word->data()); }
  uint32_t* peer_word() const { return static_cast<uint32_t*>(end_.peer_word->data()); }
  // Notes parcels for Stats.
  void Count(comm::CommOp op, int64_t bytes) LOCKS_EXCLUDED(mu_);
  comm::CommStats Counted() const LOCKS_EXCLUDED(mu_);
  // The clean end. Leave: what this end has enqueued is done, and no abort uses the peer's word any
  // more; false where the link is broken, or left already. TellLeft: nothing of the peer's is
  // mapped any more, and it is told.
  bool Leave() LOCKS_EXCLUDED(mu_);
  void TellLeft();
  void AwaitPeerLeft() LOCKS_EXCLUDED(mu_);
  // Texts between the hosts.
  Status Tell(const std::string& text);
  StatusOr<std::string> Hear();

  PeerEnd end_;
  kernels::Device* const device_;
  const std::unique_ptr<kernels::Stream> stream_;
  const std::unique_ptr<comm::DeviceWatch> own_watch_;  // without a thread; where none was given
  comm::DeviceWatch* const watch_;
  mutable base::Mutex mu_;
  bool broken_ GUARDED_BY(mu_) = false;
  bool left_ GUARDED_BY(mu_) = false;
  std::optional<uint32_t> far_ahead_ GUARDED_BY(mu_);  // the own word, once broken
  // Behind the latest store of the peer's word and the one before it, in turn.
  const std::array<std::unique_ptr<kernels::Event>, 2> stored_;
  size_t latest_ GUARDED_BY(mu_) = 0;
  uint32_t latest_value_ GUARDED_BY(mu_) = 0;
  std::optional<uint32_t> awaited_ GUARDED_BY(mu_);  // the newest wait's, unless it is over
  base::MonotonicTime awaited_at_ GUARDED_BY(mu_);
  std::optional<uint32_t> seen_ GUARDED_BY(mu_);  // the own word, by the latest look at it
  base::MonotonicTime looked_at_ GUARDED_BY(mu_);
  base::MonotonicTime moved_at_ GUARDED_BY(mu_);  // when a look first saw its value of now
  comm::CommStats stats_ GUARDED_BY(mu_);
};

class PeerSender final : public Sender, private PeerLinkEnd {
 public:
  PeerSender(PeerEnd end, kernels::Device* device);
  ~PeerSender() override { Unwatch(); }

  using PeerLinkEnd::Look;
  void Abort(std::string_view reason) override { Break(reason); }
  Status status() const override { return end_.host->status(); }
  comm::CommStats Stats() const override { return Counted(); }
  bool shares_memory() const override { return true; }
  Status Begin(kernels::Stream& stream, const Pass& pass) override;
  Status Send(kernels::Stream& stream, const Parcel& parcel) override;
  Status WaitSent(kernels::Stream& stream, int chunk, int slot) override;
  Status WaitAllSent(kernels::Stream& stream) override;
  void Detach() override;
  void AwaitPeer() override { AwaitPeerLeft(); }

 private:
  using Places = std::vector<void*>;  // by number in the pass
  StatusOr<Places> LearnPlaces();

  const std::unique_ptr<kernels::Event> ready_;
  std::map<std::pair<int, int>, std::unique_ptr<kernels::Event>> sent_;     // by chunk and slot
  std::map<std::string, std::unique_ptr<kernels::DeviceBuffer>> mappings_;  // by exported name
  std::map<int64_t, Places> places_;                                        // by Pass::id
  const Places* pass_ = nullptr;
  size_t num_sent_ = 0;  // of this pass
  uint32_t total_ = 0;   // of all passes
};

class PeerReceiver final : public Receiver, private PeerLinkEnd {
 public:
  PeerReceiver(PeerEnd end, kernels::Device* device);
  ~PeerReceiver() override { Unwatch(); }

  using PeerLinkEnd::Look;
  void Abort(std::string_view reason) override { Break(reason); }
  Status status() const override { return end_.host->status(); }
  comm::CommStats Stats() const override { return Counted(); }
  bool shares_memory() const override { return true; }
  Status Begin(kernels::Stream& stream, std::vector<Parcel> parcels, const Pass& pass) override;
  Status WaitReady(kernels::Stream& stream, int chunk, int slot) override;
  void Release(kernels::Stream& stream, int chunk, int slot) override;
  void Detach() override;
  void AwaitPeer() override { AwaitPeerLeft(); }

 private:
  Status NamePlaces();
  // Lets the sender go on up to the first parcel whose slot is in use.
  void Grant(kernels::Stream& stream);

  std::map<int64_t, bool> named_;             // by Pass::id
  std::vector<Parcel> parcels_;               // of this pass
  std::map<std::pair<int, int>, bool> held_;  // by chunk and slot
  size_t num_granted_ = 0, num_taken_ = 0;    // of this pass
  uint32_t before_ = 0;                       // parcels of the passes before
};

}  // namespace mt::parallel
