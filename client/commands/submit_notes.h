// What a user should hear of a job that is sound: said once, at submit, on stderr.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "client/session/session.h"

namespace megatrain::v1 {
class Job;
class JobSpec;
class ListNodesResponse;
}  // namespace megatrain::v1

namespace mt::client {

// Of work that a default may lose (no checkpoint before the end), of a preset whose vocabulary the
// tokenizer changes, of ranks that keep more than the largest node has, of what other runs have in
// its directory, and of fields without effect (common/spec/field_effects.h). `nodes` may be null:
// then nothing is said of memory; and so may `before`, the job that had its name so far: then
// nothing is of other runs. `restart`: another run is begun on purpose. `job` has its defaults.
// Pure.
std::vector<std::string> SubmitNotes(const v1::JobSpec& job, const v1::ListNodesResponse* nodes,
                                     const v1::Job* before = nullptr, bool restart = false);

// The newest job of this one's name that has a run, else the newest; nullopt: none, or nobody reads
// notes.
std::optional<v1::Job> JobBefore(const v1::JobSpec& job, const Api& api,
                                 const GlobalOptions& options);
struct SayArgs {
  const v1::JobSpec* job = nullptr;
  const v1::Job* before = nullptr;
  bool restart = false;
  std::string data_root;  // PassesHere (outlook.h)
};
// Prints the notes, each on a line, and the outlook, where answers are for people.
void SaySubmitNotes(const SayArgs& args, const Api& api, const GlobalOptions& options);

// Those of them that need no coordinator to be known, on stderr whatever the output.
void SayFieldNotes(const v1::JobSpec& job);

}  // namespace mt::client
