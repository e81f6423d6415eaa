// How this process starts others: posix_spawn with default signals, descriptors that are given by
// number, and an environment without what the service manager says to the agent alone.
#pragma once

#include <spawn.h>
#include <string>
#include <sys/types.h>
#include <vector>

#include "common/base/status.h"

namespace mt::node {

// posix_spawn's attributes and actions, released together. Not thread-safe.
class SpawnPlan {
 public:
  SpawnPlan();
  ~SpawnPlan();
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;

  // The child's descriptor `to` is this process' `from`.
  Status Give(int from, int to);
  // The child's descriptor `to` is /dev/null, for writing.
  Status Silence(int to);
  // The child's pid; arguments[0] is the program's path.
  StatusOr<pid_t> Spawn(std::vector<std::string> arguments, std::vector<std::string> environment);

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

// This process' environment for a child.
std::vector<std::string> ChildEnvironment();

}  // namespace mt::node
