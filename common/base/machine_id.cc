// A container has a PID namespace of its own, or its engine or orchestrator has left a sign.
#include "common/base/machine_id.h"

#include <array>
#include <cstdlib>
#include <string_view>
#include <unistd.h>

#include "common/base/files.h"

namespace mt::base {
namespace {

constexpr size_t kIdDigits = 32;  // machine-id(5)
// The initial PID namespace has this number in every Linux kernel (PROC_PID_INIT_INO).
constexpr std::string_view kInitialPidNamespace = "pid:[4026531836]";

bool InContainer() {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nothing here sets variables.
  if (std::getenv("KUBERNETES_SERVICE_HOST") != nullptr) return true;
  if (Exists("/.dockerenv") || Exists("/run/.containerenv")) return true;
  std::array<char, 64> name{};
  const auto size = ::readlink("/proc/self/ns/pid", name.data(), name.size());
  return size <= 0 ||
         std::string_view(name.data(), static_cast<size_t>(size)) != kInitialPidNamespace;
}

}  // namespace

std::string MachineId() { return InContainer() ? "" : ReadMachineId("/etc/machine-id"); }

std::string ReadMachineId(const std::string& path) {
  auto text = ReadFile(path);
  if (!text.ok()) return "";
  std::string id = std::move(text).value();
  while (!id.empty() && id.back() == '\n') id.pop_back();
  const bool is_id = id.size() == kIdDigits &&
                     id.find_first_not_of("0123456789abcdef") == std::string::npos &&
                     id.find_first_not_of('0') != std::string::npos;
  return is_id ? id : "";
}

}  // namespace mt::base
