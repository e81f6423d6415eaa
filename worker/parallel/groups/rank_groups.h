// Every process group of one rank, made from the job's mesh, and its links to the neighbours in the
// pipeline. A group is used by one thread at a time and runs its calls in order, so communication
// that may overlap has a group of its own. Source: docs/design/gpu-engine.md#process-groups.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/layout/group_axes.h"
#include "kernels/core/device.h"
#include "worker/comm/group_factory.h"
#include "worker/parallel/pipeline/edges.h"

namespace megatrain::v1 {
class JobSpec;
}

namespace mt::parallel {

// Counters added up over the groups of each axis; the seconds of groups that overlap are added too.
struct GroupStats {
  comm::CommStats tp;
  comm::CommStats pp;     // links, the exchange between the ends of a tied table, and texts
  comm::CommStats dp;     // gradients and weights
  comm::CommStats world;  // end-of-step vectors, evaluation sums, checkpoints, host words
};

// Creation is collective over the job's ranks. Each group may be used by a thread of its own;
// Abort, Stats and status may be called from any thread.
class RankGroups {
 public:
  struct Args {
    layout::Mesh mesh;
    int rank = 0;              // in the world
    int chunks = 1;            // per stage; with more the last stage feeds the first
    bool tied_tables = false;  // the first and the last stage hold one table each
    bool overlap_links = true;
    bool saves_beside = false;  // a group for saves that go on beside training
    bool decodes = false;       // a group for texts that ranks write together
    // Of groups that move what lies in host memory; not used by a world of one.
    comm::GroupFactory* factory = nullptr;
    // Of groups that move what lies in the device's memory; nullptr: the same.
    comm::GroupFactory* device_factory = nullptr;
    // Of those of them for gradients and weights: the replicas' and a tied table's, and of a second
    // group of the tensor ranks (worker/comm/copies); nullptr: the same, and no second one.
    comm::GroupFactory* copy_factory = nullptr;
    kernels::Device* device = nullptr;  // of the links' streams; outlives the groups
  };
  // Blocks for each group until its members are there; errors are the factory's.
  static StatusOr<std::unique_ptr<RankGroups>> Create(const Args& args);
  // The groups of a completed job. kFailedPrecondition where the job has no such rank.
  static StatusOr<std::unique_ptr<RankGroups>> CreateForJob(
      const megatrain::v1::JobSpec& job, int rank, comm::GroupFactory* factory,
      kernels::Device* device, comm::GroupFactory* on_device = nullptr,
      comm::GroupFactory* over_copies = nullptr);
  RankGroups(const RankGroups&) = delete;
  RankGroups& operator=(const RankGroups&) = delete;

  // Which groups this rank has, and what it is among the ranks.
  const layout::GroupAxes& axes() const { return axes_; }
  int rank() const { return axes_.world_rank(); }
  const layout::Coordinates& at() const { return axes_.at(); }

  // Each is nullptr where this rank would be its only member. World and checkpoint take host memory
  // and block; the others take the device's memory, in stream order.
  comm::ProcessGroup* world() const { return world_; }
  // All ranks too, for the thread that saves; nullptr without Args::saves_beside.
  comm::ProcessGroup* checkpoint() const { return checkpoint_; }
  // All ranks too: end-of-step vectors and sums of evaluations. The world where one factory serves
  // both kinds of memory.
  comm::ProcessGroup* control() const { return control_; }
  comm::ProcessGroup* tp() const { return tp_; }  // inside layers
  // The same ranks by copies; nullptr, too, where their GPUs do not reach each other.
  comm::ProcessGroup* tp_copies() const { return tp_copies_; }
  comm::ProcessGroup* tp_control() const { return tp_control_; }  // gradients of replicated parts
  comm::ProcessGroup* dp_reduce() const { return dp_reduce_; }
  comm::ProcessGroup* dp_gather() const { return dp_gather_; }
  // The first and the last stage, ranks of the same other coordinates; nullptr on stages between.
  comm::ProcessGroup* tied() const { return tied_; }
  // The ranks that hold the network once, stage by stage; nullptr without Args::decodes, and with
  // one stage.
  comm::ProcessGroup* decode() const { return decode_; }
  // All nullptr with one stage. Used by the training thread, until LetGoOfMemory.
  StageLinks* links() { return &links_; }
  // Whether peers of this host write the memory of this rank, or this rank theirs, so that it must
  // be of the kind that devices share.
  bool shares_memory() const LOCKS_EXCLUDED(mu_);
  // Ends what reads and writes the memory of this rank beside its own streams: the links with their
  // threads, and peers that copy into it. Call before that memory is freed; waits until the peers
  // do the same, unless something is broken.
  void LetGoOfMemory() LOCKS_EXCLUDED(mu_);

  // Ends this rank's calls in all groups. Peers get kUnavailable and abort their groups in turn, so
  // that all ranks learn of it. Returns at once.
  void Abort(std::string_view reason) LOCKS_EXCLUDED(mu_);
  // The error of the first broken group; OK if none is broken.
  Status status() const LOCKS_EXCLUDED(mu_);
  // The same for the groups of the device's memory: where one is broken, what the device computed
  // behind its calls is void. OK where calls block and return their own errors.
  Status device_status() const LOCKS_EXCLUDED(mu_);
  GroupStats Stats() const LOCKS_EXCLUDED(mu_);
  // Memory of the device that its groups took when they were made: by how much less of it was free
  // afterwards. 0 without groups of the device's memory, and where it is the host's.
  int64_t communicator_bytes() const { return communicator_bytes_; }

 private:
  explicit RankGroups(const Args& args);
  Status Make(const Args& args);
  Status MakeGroups(const Args& args);
  // Groups of the device's memory, but for the links'.
  Status MakeDeviceGroups(const Args& args, comm::GroupFactory* factory);
  // *out stays nullptr where the axes give this rank no such group, or the factory makes none.
  Status Add(layout::GroupUse use, comm::GroupFactory* factory, comm::ProcessGroup** out);
  std::vector<LinkEnd*> Ends() const EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const layout::GroupAxes axes_;
  const bool enqueues_;  // groups of the device's memory return before their calls are done
  std::vector<std::unique_ptr<comm::ProcessGroup>> groups_;
  comm::ProcessGroup* world_ = nullptr;
  comm::ProcessGroup* checkpoint_ = nullptr;
  comm::ProcessGroup* control_ = nullptr;
  comm::ProcessGroup* tp_ = nullptr;
  comm::ProcessGroup* tp_control_ = nullptr;
  comm::ProcessGroup* dp_reduce_ = nullptr;
  comm::ProcessGroup* dp_gather_ = nullptr;
  comm::ProcessGroup* tied_ = nullptr;
  comm::ProcessGroup* decode_ = nullptr;
  StageLinks links_;
  int64_t communicator_bytes_ = 0;
  mutable base::Mutex mu_;
  bool links_open_ GUARDED_BY(mu_) = false;  // others than the training thread may use them
  comm::ProcessGroup* tp_copies_ = nullptr;
};

}  // namespace mt::parallel
