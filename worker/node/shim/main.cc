// mt-shim: the parent of one rank. It collects the rank's exit status into a file and ends the rank
// with the agent; small and static, so that nothing but the kernel can take it down.
#include "worker/node/shim/options.h"
#include "worker/node/shim/supervisor.h"

int main(int argc, char** argv) {
  mt::node::ShimOptions options;
  if (!mt::node::ParseShimOptions(argc, argv, &options)) return mt::node::kBadArguments;
  return mt::node::Supervise(options);
}
