// The notation is that of cpulist files in sysfs (Linux' cputopology documentation).
#include "worker/node/gpus/numa.h"

#include <charconv>

#include <fmt/format.h>

#include "common/base/files.h"

namespace mt::node {
namespace {

// Removes a number from the front of the text and returns it; -1 if there is none below
// CPU_SETSIZE.
int TakeCore(std::string_view* text) {
  int core = -1;
  const auto parsed = std::from_chars(text->data(), text->data() + text->size(), core);
  if (parsed.ec != std::errc() || core < 0 || core >= CPU_SETSIZE) return -1;
  text->remove_prefix(static_cast<size_t>(parsed.ptr - text->data()));
  return core;
}

}  // namespace

cpu_set_t ParseCpuList(std::string_view text) {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  const cpu_set_t none = cpus;
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  while (!text.empty()) {
    const int first = TakeCore(&text);
    int last = first;
    if (text.starts_with('-')) {
      text.remove_prefix(1);
      last = TakeCore(&text);
    }
    if (first < 0 || last < first) return none;
    for (int core = first; core <= last; ++core) CPU_SET(static_cast<size_t>(core), &cpus);
    if (text.empty()) break;
    if (!text.starts_with(',')) return none;
    text.remove_prefix(1);
  }
  return cpus;
}

std::string FormatCpuList(const cpu_set_t& cpus) {
  std::string text;
  const auto is_set = [&cpus](int core) {
    return core < CPU_SETSIZE && CPU_ISSET(static_cast<size_t>(core), &cpus);
  };
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!is_set(core)) continue;
    int last = core;
    while (is_set(last + 1)) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ",", core);
    if (last > core) text += fmt::format("-{}", last);
    core = last;
  }
  return text;
}

std::string CpusOfNode(int numa_node, const cpu_set_t& usable, const std::string& sysfs_root) {
  if (numa_node < 0) return "";
  const auto text =
      base::ReadFile(fmt::format("{}/devices/system/node/node{}/cpulist", sysfs_root, numa_node));
  if (!text.ok()) return "";
  const cpu_set_t cores = ParseCpuList(*text);
  cpu_set_t both;
  CPU_AND(&both, &cores, &usable);
  return FormatCpuList(both);
}

cpu_set_t OwnCpus() {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  if (::sched_getaffinity(0, sizeof(cpus), &cpus) != 0) CPU_ZERO(&cpus);
  return cpus;
}

}  // namespace mt::node
