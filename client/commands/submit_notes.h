// What a user should hear of a job that is sound: said once, at submit, on stderr.
#pragma once

#include <string>
#include <vector>

#include "client/session/session.h"

namespace megatrain::v1 {
class JobSpec;
class ListNodesResponse;
}  // namespace megatrain::v1

namespace mt::client {

// Of work that a default may lose (no checkpoint before the end), of a preset whose vocabulary the
// tokenizer changes, and of ranks that keep more than the largest node has. `nodes` may be null:
// then nothing is said of memory. `job` has its defaults. Pure.
std::vector<std::string> SubmitNotes(const v1::JobSpec& job, const v1::ListNodesResponse* nodes);

// Prints the notes, each on a line, where answers are for people.
void SaySubmitNotes(const v1::JobSpec& job, const Api& api, const GlobalOptions& options);

}  // namespace mt::client
