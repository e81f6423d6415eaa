// mt-gpu-probe: prints one JSON document about this host's GPUs and exits. It is a process of its
// own because a broken driver may hang or kill whoever calls it: the worker agent, which never
// touches a device, starts it, waits with a deadline and reads its output.
#include <cstdio>
#include <cstdlib>

#include "common/nvml/nvml.h"
#include "worker/node/probe/inventory.h"
#include "worker/node/probe/survey.h"

namespace mt::node {
namespace {

int Print(const GpuInventory& inventory, int code) {
  std::fputs(ToJson(inventory).c_str(), stdout);
  if (!inventory.error.empty()) std::fprintf(stderr, "mt-gpu-probe: %s\n", inventory.error.c_str());
  return std::fflush(stdout) == 0 ? code : kProbeDriverError;
}

int Run() {
  const auto library = nvml::Library::Open();
  if (!library.ok()) {
    const bool absent = absl::IsNotFound(library.status());
    return Print({.error = base::Message(library.status())},
                 absent ? kProbeNoDriver : kProbeDriverError);
  }
  // NOLINTNEXTLINE(concurrency-mt-unsafe): one thread
  return Print(SurveyGpus(**library, std::getenv("CUDA_VISIBLE_DEVICES")), kProbeOk);
}

}  // namespace
}  // namespace mt::node

// NOLINTNEXTLINE(bugprone-exception-escape): only out of memory throws here, and ends the program.
int main(int argc, char** /*argv*/) {
  if (argc == 1) return mt::node::Run();
  std::fprintf(stderr,
               "mt-gpu-probe takes no arguments: it prints this host's GPUs as JSON.\n"
               "Exit codes: 0 the driver answered, 3 no driver, 4 the driver does not work.\n");
  return mt::node::kProbeBadArguments;
}
