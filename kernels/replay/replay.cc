// Each call is cloned onto several copies of its memory, at the same offsets from aligned
// addresses, because kernels may be chosen by alignment; one round runs all clones.
#include "kernels/replay/replay.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "common/base/check.h"
#include "common/base/math.h"
#include "kernels/replay/call_text.h"
#include "kernels/replay/steady_time.h"

namespace mt::kernels::replay {
namespace {

constexpr int64_t kMostCopies = 64;
constexpr uintptr_t kAlign = 256;

// Redirects a call's operands from its extents to others of the same sizes.
class Mover final : public OperandVisitor {
 public:
  // `to` has the first byte of each extent's new memory.
  Mover(const std::vector<Extent>& from, const std::vector<char*>& to) : from_(from), to_(to) {}
  void Operand(std::string_view /*name*/, Tensor* tensor, Access /*access*/) override {
    Move(&tensor->data);
  }
  void View(std::string_view /*name*/, const Heads& heads, Access /*access*/) override {
    Move(&heads.view->data);
  }
  void Block(std::string_view /*name*/, void** /*data*/, int64_t /*bytes*/,
             Access /*access*/) override {}
  void Mark(std::string_view /*text*/) override {}

 private:
  void Move(void** data) const {
    const auto* const at = static_cast<const char*>(*data);
    for (size_t i = 0; i < from_.size(); ++i) {
      const std::ptrdiff_t offset = at - from_[i].begin;
      if (offset < 0 || offset >= from_[i].bytes) continue;
      *data = to_[i] + offset;
      return;
    }
  }

  const std::vector<Extent>& from_;
  const std::vector<char*>& to_;
};

// One logged call on several sets of operands.
class Rotation {
 public:
  Rotation(Backend& backend, Stream& stream, const LoggedCall& logged, int64_t rotate_bytes)
      : backend_(backend), stream_(stream), logged_(logged), extents_(ExtentsOf(*logged.call)) {
    int64_t bytes = 0;
    for (const Extent& extent : extents_) bytes += extent.bytes;
    const int64_t sets = std::clamp<int64_t>(
        base::CeilDiv(rotate_bytes, std::max<int64_t>(1, bytes)), 1, kMostCopies);
    for (int64_t set = 0; set < sets; ++set) {
      if (!AddSet(set > 0)) break;
    }
    CHECK(!calls_.empty()) << "no memory for the indices of " << logged.call->entry();
    stream.Synchronize();
  }

  int size() const { return static_cast<int>(calls_.size()); }
  void RunAll() const {
    for (const auto& call : calls_) call->Run(backend_, stream_);
  }

 private:
  // With `copied`, all operands get memory of their own; otherwise only the indices. Returns false
  // if the device has no room.
  bool AddSet(bool copied) {
    std::vector<std::unique_ptr<DeviceBuffer>> buffers;
    std::vector<char*> places;
    size_t next_indices = 0;
    for (const Extent& extent : extents_) {
      const char* from = extent.begin;
      if (extent.indices) {
        from = logged_.indices[next_indices++].data();
      } else if (!copied) {
        places.push_back(extent.begin);
        continue;
      }
      // Keeps the offset from an aligned address, because kernels may be chosen by it.
      const auto offset = static_cast<int64_t>(reinterpret_cast<uintptr_t>(extent.begin) % kAlign);
      try {
        buffers.push_back(backend_.device().Allocate(offset + extent.bytes, MemoryKind::kDevice));
      } catch (const DeviceMemoryError&) {
        return false;
      }
      places.push_back(static_cast<char*>(buffers.back()->data()) + offset);
      backend_.device().Copy(stream_, places.back(), from, extent.bytes);
    }
    std::unique_ptr<OpCall> call = logged_.call->Clone();
    Mover mover(extents_, places);
    call->VisitOperands(&mover);
    calls_.push_back(std::move(call));
    std::move(buffers.begin(), buffers.end(), std::back_inserter(buffers_));
    return true;
  }

  Backend& backend_;
  Stream& stream_;
  const LoggedCall& logged_;
  const std::vector<Extent> extents_;
  std::vector<std::unique_ptr<DeviceBuffer>> buffers_;
  std::vector<std::unique_ptr<OpCall>> calls_;
};

double TimeCall(Backend& backend, Stream& stream, const LoggedCall& logged, int64_t rotate_bytes,
                double seconds) {
  const Rotation rotation(backend, stream, logged, rotate_bytes);
  return MedianSeconds(backend.device(), stream, rotation.size(), seconds,
                       [&] { rotation.RunAll(); }) /
         rotation.size();
}

}  // namespace

std::vector<CallTime> Replay(Backend& backend, const std::vector<LoggedCall>& calls,
                             const ReplayArgs& args) {
  const auto stream = backend.device().CreateStream(StreamPriority::kLow);
  std::vector<CallTime> times;
  double sum = 0;
  const auto time = [&](const LoggedCall& call, double seconds) {
    const double one = TimeCall(backend, *stream, call, args.rotate_bytes, seconds);
    if (args.on_progress) args.on_progress();
    return one;
  };
  for (const LoggedCall& call : calls) {
    times.push_back(
        {.label = LabelOf(*call.call), .count = call.count, .seconds = time(call, args.seconds)});
    sum += times.back().total();
  }
  for (size_t i = 0; i < calls.size(); ++i) {
    if (times[i].total() >= args.large_share * sum)
      times[i].seconds = time(calls[i], args.large_seconds);
  }
  std::stable_sort(times.begin(), times.end(),
                   [](const CallTime& a, const CallTime& b) { return a.total() > b.total(); });
  return times;
}

}  // namespace mt::kernels::replay
