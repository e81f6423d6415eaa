// Finds out what host and cgroup still offer, compares a plan with it, allocates one buffer per
// kind, and writes the error message that a user acts on.
#include "worker/memory/memory.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>

#include "common/base/files.h"
#include "common/base/math.h"

namespace mt::memory {
namespace {

constexpr std::string_view kCgroupRoot = "/sys/fs/cgroup/";

// Parses the integer behind `key` in text whose lines read "key: 123" or "key 123".
std::optional<int64_t> NumberAfter(std::string_view text, std::string_view key) {
  size_t at = text.find(key);
  while (at != std::string_view::npos && at != 0 && text[at - 1] != '\n') {
    at = text.find(key, at + 1);
  }
  if (at == std::string_view::npos) return std::nullopt;
  at = text.find_first_of("0123456789\n", at + key.size());
  if (at == std::string_view::npos) return std::nullopt;
  int64_t value = 0;
  const auto end = std::from_chars(text.data() + at, text.data() + text.size(), value);
  if (end.ec != std::errc()) return std::nullopt;
  return value;
}

// Bytes left below the limit of this process' cgroup (version 2); nullopt where there is no limit.
// The page cache that the kernel can reclaim does not count as used.
std::optional<int64_t> CgroupBytesLeft() {
  const auto limit = base::ReadFile(base::JoinPath(kCgroupRoot, "memory.max"));
  const auto current = base::ReadFile(base::JoinPath(kCgroupRoot, "memory.current"));
  const auto stat = base::ReadFile(base::JoinPath(kCgroupRoot, "memory.stat"));
  if (!limit.ok() || !current.ok() || !stat.ok()) return std::nullopt;
  const auto limit_bytes = NumberAfter(*limit, "");
  const auto used = NumberAfter(*current, "");
  const auto droppable = NumberAfter(*stat, "inactive_file");
  if (!limit_bytes || !used) return std::nullopt;
  return std::max<int64_t>(0, *limit_bytes - *used + droppable.value_or(0));
}

std::string InGib(int64_t bytes) {
  return fmt::format("{:.3f} GiB", static_cast<double>(bytes) / static_cast<double>(1LL << 30));
}

std::string ListByKind(const BytesByKind& bytes) {
  std::string out;
  for (int k = 0; k < kNumKinds; ++k) {
    const int64_t n = bytes[static_cast<size_t>(k)];
    if (n == 0) continue;
    if (!out.empty()) out += ", ";
    out += fmt::format("{} {}", Name(static_cast<Kind>(k)), InGib(n));
  }
  return out;
}

constexpr auto kPinnedIndex = static_cast<size_t>(Kind::kPinned);

// Advice for the error message. A GPU has one rank.
std::string_view Remedy(const kernels::Device& device) {
  if (device.kind() == kernels::DeviceKind::kCpu) {
    return "spread the model over more slots (parallel.tensor, parallel.pipeline) or place fewer "
           "ranks on this node";
  }
  return "spread the model over more GPUs (parallel.tensor, parallel.pipeline), or end what else "
         "holds memory of this GPU (nvidia-smi lists processes)";
}

Status TooMuch(const kernels::Device& device, const MemoryPlan& plan, const std::string& why) {
  const BytesByKind bytes = plan.BytesTaken(device);
  std::string besides;
  if (Total(plan.taken()) > 0) {
    besides = fmt::format(" besides what it has taken ({})", ListByKind(plan.taken()));
  }
  return base::Error(absl::StatusCode::kResourceExhausted,
                     "out of memory: a rank needs {} bytes = {} ({}){}, {}; lower "
                     "training.micro_batch_size, recompute activations "
                     "(training.recompute.mode: selective or full), {}",
                     Total(bytes), InGib(Total(bytes)), ListByKind(bytes), besides, why,
                     Remedy(device));
}

// "12 bytes = 0.000 GiB more than the 30 bytes = 0.000 GiB that are available"
std::string MoreThan(int64_t needed, int64_t limit) {
  return fmt::format("{} bytes = {} more than the {} bytes = {} that are available", needed - limit,
                     InGib(needed - limit), limit, InGib(limit));
}

// Compares the plan with `limit_bytes`; on a GPU without its pinned part, which is compared with
// the host's memory.
Status CheckFits(kernels::Device& device, const MemoryPlan& plan, int64_t limit_bytes) {
  const BytesByKind bytes = plan.BytesTaken(device);
  const int64_t pinned = bytes[kPinnedIndex];
  const auto device_memory = device.Memory();
  if (!device_memory) {
    if (Total(bytes) <= limit_bytes) return OkStatus();
    return TooMuch(device, plan, MoreThan(Total(bytes), limit_bytes));
  }
  ASSIGN_OR_RETURN(const int64_t host, AvailableHostBytes());
  if (pinned > host) return TooMuch(device, plan, "pinned memory: " + MoreThan(pinned, host));
  const int64_t needed = Total(bytes) - pinned;
  if (needed <= limit_bytes) return OkStatus();
  return TooMuch(
      device, plan,
      fmt::format("{} on {}, of whose {} bytes {} are free", MoreThan(needed, limit_bytes),
                  device.Describe(), device_memory->total_bytes, device_memory->free_bytes));
}

}  // namespace

std::string_view Name(Kind kind) {
  switch (kind) {
    case Kind::kWeights:
      return "weights";
    case Kind::kGradients:
      return "gradients";
    case Kind::kOptimizer:
      return "optimizer";
    case Kind::kActivations:
      return "activations";
    case Kind::kWorkspace:
      return "workspace";
    case Kind::kComm:
      return "comm";
    case Kind::kPinned:
      return "pinned";
    case Kind::kLibraries:
      return "libraries";
  }
  return "?";
}

int64_t Total(const BytesByKind& bytes) {
  int64_t total = 0;
  for (const int64_t n : bytes) total += n;
  return total;
}

Block MemoryPlan::Reserve(Kind kind, int64_t bytes) {
  CHECK_GE(bytes, 0);
  int64_t& used = bytes_[static_cast<size_t>(kind)];
  const Block block{.kind = kind, .offset_bytes = used, .bytes = bytes};
  used += base::RoundUp(bytes, kAlignBytes);
  return block;
}

void MemoryPlan::CountTaken(Kind kind, int64_t bytes) {
  CHECK_GE(bytes, 0);
  taken_[static_cast<size_t>(kind)] += bytes;
}

kernels::MemoryKind MemoryPlan::KindOf(Kind kind) const {
  if (kind == Kind::kPinned) return kernels::MemoryKind::kPinnedHost;
  const bool of_peers = kind != Kind::kOptimizer && kind != Kind::kLibraries;
  return shared_ && of_peers ? kernels::MemoryKind::kShared : kernels::MemoryKind::kDevice;
}

BytesByKind MemoryPlan::BytesTaken(const kernels::Device& device) const {
  BytesByKind taken{};
  for (size_t k = 0; k < taken.size(); ++k) {
    if (bytes_[k] > 0) taken[k] = device.BytesTaken(bytes_[k], KindOf(static_cast<Kind>(k)));
  }
  return taken;
}

StatusOr<int64_t> AvailableHostBytes() {
  ASSIGN_OR_RETURN(const std::string meminfo, base::ReadFile("/proc/meminfo"));
  const auto available_kib = NumberAfter(meminfo, "MemAvailable:");
  if (!available_kib) return base::Internal("/proc/meminfo has no MemAvailable");
  const int64_t available = *available_kib * 1024;
  return std::min(available, CgroupBytesLeft().value_or(available));
}

StatusOr<int64_t> AvailableBytes(kernels::Device& device) {
  const auto memory = device.Memory();
  if (!memory) return AvailableHostBytes();
  return std::max<int64_t>(0, memory->free_bytes - kLibraryReserveBytes);
}

StatusOr<std::unique_ptr<Memory>> Memory::Allocate(kernels::Device& device, const MemoryPlan& plan,
                                                   int64_t limit_bytes) {
  const BytesByKind bytes = plan.BytesTaken(device);
  RETURN_IF_ERROR(CheckFits(device, plan, limit_bytes));
  std::unique_ptr<Memory> memory(new Memory());
  try {
    const auto stream = device.CreateStream(kernels::StreamPriority::kLow);
    for (size_t k = 0; k < static_cast<size_t>(kNumKinds); ++k) {
      if (bytes[k] == 0) continue;
      memory->buffers_[k] = device.Allocate(bytes[k], plan.KindOf(static_cast<Kind>(k)));
      device.Zero(*stream, memory->buffers_[k]->data(), bytes[k]);
    }
    stream->Synchronize();
  } catch (const kernels::DeviceMemoryError& error) {
    return TooMuch(device, plan, fmt::format("the device refused: {}", error.what()));
  }
  memory->bytes_ = bytes;
  memory->taken_ = plan.taken();
  return memory;
}

void* Memory::Data(const Block& block) const {
  const auto& buffer = buffers_[static_cast<size_t>(block.kind)];
  if (block.bytes == 0) return nullptr;
  CHECK(buffer != nullptr && block.offset_bytes + block.bytes <= buffer->bytes())
      << "block of another plan";
  return static_cast<char*>(buffer->data()) + block.offset_bytes;
}

}  // namespace mt::memory
