// Starts child processes by posix_spawn, with default signal handling, chosen descriptors, and an
// environment without the variables that the service manager sets for the agent alone.
#pragma once

#include <spawn.h>
#include <string>
#include <sys/types.h>
#include <vector>

#include "common/base/status.h"

namespace mt::node {

// Owns posix_spawn's attributes and file actions. Not thread-safe.
class SpawnPlan {
 public:
  SpawnPlan();
  ~SpawnPlan();
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;

  // Makes this process' descriptor `from` the child's `to`.
  Status Give(int from, int to);
  // Opens /dev/null for writing as the child's descriptor `to`.
  Status Silence(int to);
  // Starts arguments[0], a path, and returns the child's pid. Errors: those of posix_spawn.
  StatusOr<pid_t> Spawn(std::vector<std::string> arguments, std::vector<std::string> environment);

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

// This process' environment without the service manager's variables.
std::vector<std::string> ChildEnvironment();

}  // namespace mt::node
