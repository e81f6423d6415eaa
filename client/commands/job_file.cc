#include "client/commands/job_file.h"

#include <cstdio>
#include <iostream>
#include <iterator>

#include "common/spec/parse.h"
#include "common/spec/validate.h"
#include "megatrain/v1/job.pb.h"

namespace mt::client {

ExitCode ReadJobFile(const JobFileArgs& args, const GlobalOptions& options,
                     megatrain::v1::JobSpec* job) {
  std::vector<std::string> overrides = args.overrides;
  // --namespace wins over the file; --set wins over both.
  if (options.job_namespace != "default")
    overrides.insert(overrides.begin(), "namespace=" + options.job_namespace);
  spec::Faults faults;
  if (args.path == "-") {
    const std::string text{std::istreambuf_iterator<char>(std::cin),
                           std::istreambuf_iterator<char>()};
    faults = spec::LoadJob(text, overrides, {}, job);
  } else {
    faults = spec::LoadJobFile(args.path, overrides, {}, job);
  }
  if (faults.empty()) return kExitOk;
  std::fprintf(stderr, "mtctl: %s: %zu fault%s\n%s\n", args.path.c_str(), faults.size(),
               faults.size() == 1 ? "" : "s", spec::FormatFaults(faults).c_str());
  return kExitInvalidInput;
}

}  // namespace mt::client
