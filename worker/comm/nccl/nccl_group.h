// A process group over NCCL: calls enqueue on the caller's stream and return. What a member reports
// of a call therefore comes later: from the watch, which sees calls that do not end and errors
// behind the call, and from whoever aborts the group because a peer is gone, of which NCCL itself
// tells nothing within a host.
//
// Bits: NCCL promises that all members obtain the same ones, and that a rerun on the same GPUs
// does; not the order of sums of process_group.h. Counts of 0 are no meeting. Calls of members are
// not compared: members that call different things hang, and the deadline names what each was in.
#pragma once

#include <deque>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "worker/comm/device_watch.h"
#include "worker/comm/nccl/nccl_library.h"
#include "worker/comm/nccl/turn.h"
#include "worker/comm/process_group.h"

namespace mt::comm {

class NcclGroup final : public ProcessGroup, private DeviceWatch::Watched {
 public:
  // Takes the communicator. Library, device and watch must outlive the group.
  struct Args {
    const NcclLibrary* library = nullptr;
    NcclComm comm = nullptr;
    kernels::Device* device = nullptr;
    DeviceWatch* watch = nullptr;
  };
  NcclGroup(GroupSpec spec, CommConfig config, const Args& args);
  // Ends the communicator, by an abort where calls are under way that do not end. Blocks up to some
  // seconds; what takes longer goes on without the group, and keeps the device's memory it needs.
  ~NcclGroup() override;

 private:
  // What the end of the communicator needs, which may outlive the group.
  struct Handle {
    const NcclLibrary* library = nullptr;
    NcclComm comm = nullptr;
    kernels::Device* device = nullptr;
    std::string name;
    std::unique_ptr<kernels::DeviceBuffer> word;  // of barriers
    Turn turn;                                    // held while NCCL runs a call of ours
  };
  // A call that the device may not have reached, or the newest of several in a row.
  struct InFlight {
    Call call;
    int64_t first = 0;   // among the group's calls, from 1
    int64_t number = 0;  // the newest
    base::MonotonicTime enqueued;
    std::unique_ptr<kernels::Event> end;

    std::string Describe() const;
  };

  Status DoCall(kernels::Stream& stream, const Call& call, base::MonotonicTime deadline) override;
  void OnBroken() override;
  void Look(base::MonotonicTime now) override;

  // Enqueues in turn.
  Status Enter(const Call& call, NcclStream stream);
  Status Enqueue(const Call& call, NcclStream stream) const;
  Status Exchange(const Call& call, NcclStream stream) const;
  Status Meet(kernels::Stream& stream);
  Status Check(NcclResult result) const;
  // Tells the watch of the call that NCCL is in; null: of none. It blocks there for the first
  // message between two members, until both have come.
  void SetEntered(const Call* call);
  // Remembers the call for the watch.
  void Follow(kernels::Stream& stream, const Call& call);
  // The error behind the calls, if there is one and NCCL can be asked just now.
  Status AskForError();
  // Forgets the calls that the device has done.
  void DropEnded(base::MonotonicTime now) EXCLUSIVE_LOCKS_REQUIRED(calls_mu_);
  // Returns whether all calls have ended, after some time at most.
  bool AwaitCalls();
  // Begins to free the communicator. Called once.
  void BeginEnd(bool abort);
  static void End(Handle* handle, bool abort);

  const std::shared_ptr<Handle> handle_;
  const NcclLibrary* const library_;
  const NcclComm comm_;
  kernels::Device* const device_;
  DeviceWatch* const watch_;
  // Set by OnBroken or the destructor.
  std::thread ending_;
  std::future<void> ended_;
  base::MonotonicTime end_begun_;

  base::Mutex calls_mu_;
  std::optional<Call> entered_ GUARDED_BY(calls_mu_);
  int64_t entered_number_ GUARDED_BY(calls_mu_) = 0;
  base::MonotonicTime entered_at_ GUARDED_BY(calls_mu_);
  std::deque<InFlight> in_flight_ GUARDED_BY(calls_mu_);
  std::vector<std::unique_ptr<kernels::Event>> spare_ GUARDED_BY(calls_mu_);
  base::MonotonicTime last_end_ GUARDED_BY(calls_mu_);  // when the newest end was seen
};

}  // namespace mt::comm
