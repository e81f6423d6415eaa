// The job of kind generate or eval that a command line of `mtctl generate` or `eval` means where it
// names a job: what the cluster is asked to read. Blocks on files; one thread.
#pragma once

#include <string>

#include "client/session/session.h"
#include "common/base/status.h"

namespace megatrain::v1 {
class Generate;
class JobSpec;
}  // namespace megatrain::v1
namespace mt::decode {
struct EvalFlags;
struct GenerateFlags;
}  // namespace mt::decode

namespace mt::client {

// What is read, and what the flags alone do not tell.
struct ReaderSource {
  const v1::Job* job = nullptr;  // whose checkpoint
  std::string what;              // JobText::what
  bool device_given = false;     // else the nodes say: GPUs where there are any
  bool threads_given = false;    // else the node's share
  std::string data_root;         // the nodes' data root, as this machine has it; empty: not known
};

// The flags of what is written, without defaults. Reads standard input for a prompt "-".
// kInvalidArgument: a text that a job cannot hold, --raw.
StatusOr<v1::Generate> GenerateOf(const decode::GenerateFlags& flags);

// The flags as a job, without defaults and without a name. `flags.json` asks for JSON. Reads
// standard input for a prompt "-". Errors: kFailedPrecondition: the job saves no checkpoints;
// kInvalidArgument: a checkpoint is named twice, a text that a job cannot hold, a file that is not
// below the data root.
StatusOr<v1::JobSpec> GenerateSpec(const decode::GenerateFlags& flags, const ReaderSource& source);
StatusOr<v1::JobSpec> EvalSpec(const decode::EvalFlags& flags, const ReaderSource& source);

// The data root of the cluster of `mtctl dev up`, where that is the one in use; else empty.
std::string DevDataRoot(const GlobalOptions& options);

}  // namespace mt::client
