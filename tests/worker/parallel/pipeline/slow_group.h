// A process group with delays before the sender's buffer is read and after the receiver's is
// written, so that a buffer which is released too early is seen to change.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>

#include "worker/comm/group_factory.h"

namespace mt::parallel {

class SlowGroup final : public comm::ProcessGroup {
 public:
  SlowGroup(std::unique_ptr<comm::ProcessGroup> inner, comm::GroupSpec spec, int max_delay_us,
            uint64_t seed)
      : ProcessGroup(std::move(spec), {}),
        inner_(std::move(inner)),
        max_delay_us_(max_delay_us),
        random_(seed) {}

 private:
  Status DoCall(kernels::Stream& stream, const Call& call,
                base::MonotonicTime /*deadline*/) override {
    Delay();
    if (call.op == comm::CommOp::kSend) {
      return inner_->Send(stream, call.in, call.count, call.dtype, call.peer, call.edge);
    }
    CHECK(call.op == comm::CommOp::kRecv) << call.Describe();
    RETURN_IF_ERROR(inner_->Recv(stream, call.out, call.count, call.dtype, call.peer, call.edge));
    Delay();
    return OkStatus();
  }
  void OnBroken() override { inner_->Abort(base::ToStd(status().message())); }

  void Delay() {
    const auto us = static_cast<int64_t>(random_() % static_cast<uint64_t>(max_delay_us_ + 1));
    if (us > 0) std::this_thread::sleep_for(std::chrono::microseconds(us));
  }

  const std::unique_ptr<comm::ProcessGroup> inner_;
  const int max_delay_us_;
  std::mt19937_64 random_;
};

// Makes slow groups of another factory's.
class SlowFactory final : public comm::GroupFactory {
 public:
  SlowFactory(comm::GroupFactory* inner, int max_delay_us, uint64_t seed)
      : inner_(inner), max_delay_us_(max_delay_us), seed_(seed) {}

  StatusOr<std::unique_ptr<comm::ProcessGroup>> Create(comm::GroupSpec spec) override {
    ASSIGN_OR_RETURN(auto group, inner_->Create(spec));
    const uint64_t seed = seed_ ^ std::hash<std::string>{}(spec.name);
    return std::make_unique<SlowGroup>(std::move(group), std::move(spec), max_delay_us_, seed);
  }

 private:
  comm::GroupFactory* const inner_;
  const int max_delay_us_;
  const uint64_t seed_;
};

}  // namespace mt::parallel
