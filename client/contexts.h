// Named clusters of the user: $XDG_CONFIG_HOME/megatrain/config.yaml,
//   current: lab
//   contexts:
//     - {name: lab, endpoint: "head:7070", namespace: team}
// Read whole, written atomically. Errors name the file and the line.
#pragma once

#include <string>
#include <vector>

#include "common/base/status.h"

namespace mt::client {

struct Context {
  std::string name;
  std::string endpoint;       // HOST:PORT
  std::string job_namespace;  // empty: "default"
};

struct ContextFile {
  std::string current;  // empty: none
  std::vector<Context> contexts;

  const Context* Find(const std::string& name) const;  // nullptr: none
};

// $XDG_CONFIG_HOME/megatrain/config.yaml, or ~/.config/megatrain/config.yaml.
std::string ContextPath();

// A file that does not exist is an empty one. kInvalidArgument "PATH:LINE: ...": unknown keys,
// doubled names, a bad endpoint, a current context that is not there.
StatusOr<ContextFile> ReadContexts(const std::string& path);
Status WriteContexts(const std::string& path, const ContextFile& file);

// By name; kNotFound lists those there are.
StatusOr<Context> NamedContext(const ContextFile& file, const std::string& name);

}  // namespace mt::client
