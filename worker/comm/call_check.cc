// Signatures go round the group for collectives and to the peer for messages. Per pair of members
// they arrive in order, so one call too many meets the next one, and a collective may meet a
// message.
#include "worker/comm/call_check.h"

#include <chrono>
#include <cstdint>
#include <deque>
#include <string>
#include <thread>
#include <utility>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "worker/comm/call_header.h"
#include "worker/comm/process_group.h"

namespace mt::comm {
namespace {

// How long the end of a group waits until calls are compared, and then for its peers.
constexpr std::chrono::seconds kEndLimit{2};

// Groups of host memory enqueue nothing.
class NoStream final : public kernels::Stream {
 public:
  void Wait(kernels::Event& /*event*/) override {}
  void Synchronize() override {}
};

struct Signature {
  CallHeader header;  // its sequence is the call's number in the group
  int32_t edge = 0;
  int32_t reserved = 0;

  CommCall ToCall() const {
    CommCall call = header.ToCall();
    call.edge = edge;
    return call;
  }
  std::string Describe() const {
    return fmt::format("{} (call {})", ToCall().Describe(), header.sequence);
  }
};
static_assert(sizeof(Signature) == 32);

bool IsMessage(CommOp op) { return op == CommOp::kSend || op == CommOp::kRecv; }

class CallCheck final : public CallListener {
 public:
  // The group, which owns this, and the factory outlive it.
  CallCheck(ProcessGroup* group, GroupSpec spec, GroupFactory* hosts, const CommConfig& config)
      : group_(group), spec_(std::move(spec)), hosts_(hosts), config_(config), thread_([this] {
          Run();
        }) {}

  ~CallCheck() override {
    const base::MonotonicTime limit = base::Clock::Real()->Now() + 2 * kEndLimit;
    {
      base::MutexLock lock(&mu_);
      ending_ = true;
      changed_.NotifyAll();
      while (!done_ && changed_.WaitUntil(&mu_, limit)) {
      }
      if (host_ != nullptr) host_->Abort("the group whose calls it compares has ended");
    }
    thread_.join();
  }

  void OnCall(int64_t number, const CommCall& call) override {
    Signature signature;
    signature.header = CallHeader(call, static_cast<uint64_t>(number));
    signature.edge = call.edge;
    const base::MutexLock lock(&mu_);
    calls_.push_back(signature);
    changed_.NotifyAll();
  }

  void OnBroken() override {
    const base::MutexLock lock(&mu_);
    broken_ = true;
    if (host_ != nullptr) host_->Abort("the group whose calls it compares is broken");
    changed_.NotifyAll();
  }

 private:
  void Run() {
    Status status = Meet();
    while (status.ok()) {
      Signature own;
      if (!Next(&own)) break;
      status = Compare(own);
    }
    if (status.ok()) {
      Leave();
    } else {
      static_cast<void>(group_->Fail(base::Annotate(
          status, fmt::format("group {}: while members compare their calls", spec_.name))));
    }
    const base::MutexLock lock(&mu_);
    done_ = true;
    changed_.NotifyAll();
  }

  Status Meet() {
    auto host = hosts_->Create(
        {.name = "calls/" + spec_.name, .members = spec_.members, .my_index = spec_.my_index});
    RETURN_IF_ERROR(host.status());
    // A member may be as late to a call as the group lets it be.
    (*host)->SetOpTimeout(2 * config_.op_timeout);
    const base::MutexLock lock(&mu_);
    host_ = *std::move(host);
    if (broken_) host_->Abort("the group whose calls it compares is broken");
    return OkStatus();
  }

  // The next call of this member; false once there are no more.
  bool Next(Signature* own) {
    base::MutexLock lock(&mu_);
    while (calls_.empty() && !ending_ && !broken_) changed_.Wait(&mu_);
    if (calls_.empty() || broken_) return false;
    *own = calls_.front();
    calls_.pop_front();
    return true;
  }

  Status Compare(const Signature& own) {
    const int size = host_->size(), rank = host_->rank();
    const int32_t peer = own.header.peer;
    const bool sends = own.header.op != CommOp::kRecv;
    const bool receives = own.header.op != CommOp::kSend;
    const int to = IsMessage(own.header.op) ? peer : (rank + 1) % size;
    const int from = IsMessage(own.header.op) ? peer : (rank + size - 1) % size;
    if (sends) {
      RETURN_IF_ERROR(host_->Send(stream_, &own, sizeof(own), kernels::DType::kU8, to, /*edge=*/0));
    }
    if (!receives) return OkStatus();
    Signature theirs;
    RETURN_IF_ERROR(
        host_->Recv(stream_, &theirs, sizeof(theirs), kernels::DType::kU8, from, /*edge=*/0));
    if (Fits(own, theirs)) return OkStatus();
    return base::FailedPrecondition("rank {} (world {}) calls {}, rank {} (world {}) calls {}",
                                    rank, host_->WorldRank(rank), own.Describe(), from,
                                    host_->WorldRank(from), theirs.Describe());
  }

  bool Fits(const Signature& own, const Signature& theirs) const {
    CommCall expected = own.ToCall();
    if (own.header.op == CommOp::kRecv) {
      expected.op = CommOp::kSend;
      expected.peer = host_->rank();
    }
    return expected.Matches(theirs.ToCall()) && own.edge == theirs.edge;
  }

  // Peers may not have compared yet what this member told them.
  void Leave() {
    host_->SetOpTimeout(kEndLimit);
    static_cast<void>(host_->Barrier(stream_));
  }

  ProcessGroup* const group_;
  const GroupSpec spec_;
  GroupFactory* const hosts_;
  const CommConfig config_;
  NoStream stream_;
  base::Mutex mu_;
  base::CondVar changed_;
  std::unique_ptr<ProcessGroup> host_;  // written once, under mu_, by the thread
  std::deque<Signature> calls_ GUARDED_BY(mu_);
  bool ending_ GUARDED_BY(mu_) = false;
  bool broken_ GUARDED_BY(mu_) = false;
  bool done_ GUARDED_BY(mu_) = false;
  std::thread thread_;  // last: it uses the members above
};

class CheckedFactory final : public GroupFactory {
 public:
  CheckedFactory(GroupFactory* inner, GroupFactory* hosts, const CommConfig& config)
      : inner_(inner), hosts_(hosts), config_(config) {}

  StatusOr<std::unique_ptr<ProcessGroup>> Create(GroupSpec spec) override {
    ASSIGN_OR_RETURN(std::unique_ptr<ProcessGroup> group, inner_->Create(spec));
    if (group == nullptr || spec.members.size() == 1) return group;
    group->listener().Set(
        std::make_unique<CallCheck>(group.get(), std::move(spec), hosts_, config_));
    return group;
  }
  DeviceWatch* watch() override { return inner_->watch(); }

 private:
  GroupFactory* const inner_;
  GroupFactory* const hosts_;
  const CommConfig config_;
};

}  // namespace

std::unique_ptr<GroupFactory> MakeCheckedFactory(GroupFactory* inner, GroupFactory* hosts,
                                                 const CommConfig& config) {
  return std::make_unique<CheckedFactory>(inner, hosts, config);
}

}  // namespace mt::comm
