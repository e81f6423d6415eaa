// All know what each could name before anybody maps it, and what each could map before it counts.
#include "worker/comm/copies/shared_windows.h"

#include <utility>

#include "worker/comm/copies/exchange.h"

namespace mt::comm {
namespace {

using kernels::DeviceBuffer;

std::string NameOf(const ProcessGroup& host, int member) {
  return fmt::format("rank {} (world {})", member, host.WorldRank(member));
}

std::unique_ptr<DeviceBuffer> Import(kernels::Device& device, const std::string& name,
                                     int64_t bytes, std::string* why_not) {
  std::unique_ptr<DeviceBuffer> mapped = device.peers()->Import(name, why_not);
  if (mapped == nullptr || mapped->bytes() >= bytes) return mapped;
  *why_not = "it is smaller than this one's";
  return nullptr;
}

}  // namespace

StatusOr<std::string> SharedWindows::Map(ProcessGroup& host, kernels::Stream& stream,
                                         kernels::Device& device,
                                         const ProcessGroup::SharedMemory& memory) {
  std::vector<ProcessGroup::SharedMemory::Piece> pieces = memory.operands;
  pieces.push_back(memory.scratch);
  std::vector<std::string> sizes_and_names;
  std::vector<SharedWindow> windows;
  std::string mine;  // why this member's driver refuses
  for (const auto& piece : pieces) {
    std::string why_not;
    sizes_and_names.push_back(std::to_string(piece.bytes));
    sizes_and_names.push_back(piece.bytes == 0 ? "" : device.peers()->Export(piece.data, &why_not));
    if (!why_not.empty()) mine = "its memory cannot be shared: " + why_not;
    windows.push_back({.own = static_cast<std::byte*>(piece.data), .bytes = piece.bytes});
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> all,
                   Exchange(host, stream, Join(sizes_and_names)));
  for (int peer = 0; peer < host.size(); ++peer) {
    const std::vector<std::string> theirs = Split(all[static_cast<size_t>(peer)]);
    for (size_t i = 0; i < pieces.size(); ++i) {
      if (theirs.size() != sizes_and_names.size() || theirs[2 * i] != sizes_and_names[2 * i]) {
        return base::FailedPrecondition("group {}: {} shares other memory than {}", host.name(),
                                        NameOf(host, peer), NameOf(host, host.rank()));
      }
      windows[i].peers.emplace_back();
      const std::string& name = theirs[2 * i + 1];
      if (peer == host.rank() || name.empty() || !mine.empty()) continue;
      std::string why_not;
      windows[i].peers.back() = Import(device, name, pieces[i].bytes, &why_not);
      if (!why_not.empty()) {
        mine = fmt::format("the memory of {} cannot be mapped: {}", NameOf(host, peer), why_not);
      }
    }
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> answers, Exchange(host, stream, mine));
  for (int peer = 0; peer < host.size(); ++peer) {
    const std::string& answer = answers[static_cast<size_t>(peer)];
    if (!answer.empty()) return NameOf(host, peer) + ": " + answer;
  }
  scratch_ = std::move(windows.back());
  windows.pop_back();
  operands_ = std::move(windows);
  return std::string();
}

void SharedWindows::Clear() {
  operands_.clear();
  scratch_ = {};
}

StatusOr<SharedPart> SharedWindows::Locate(const void* data, int64_t bytes) const {
  const auto* const at = static_cast<const std::byte*>(data);
  for (const SharedWindow& window : operands_) {
    if (at < window.own || at + bytes > window.own + window.bytes) continue;
    return SharedPart{.window = &window, .offset = at - window.own, .bytes = bytes};
  }
  return base::FailedPrecondition("{} bytes that lie in no memory of Share", bytes);
}

}  // namespace mt::comm
