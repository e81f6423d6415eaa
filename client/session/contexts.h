// The user's named clusters (contexts), in $XDG_CONFIG_HOME/megatrain/config.yaml:
//   current: lab
//   contexts:
//     - {name: lab, endpoint: "head:7070", namespace: team}
// The file is read as a whole and written atomically. Errors name the file and the line. Functions
// block; one thread.
#pragma once

#include <string>
#include <vector>

#include "common/base/status.h"

namespace mt::client {

// One cluster, and the namespace to use there.
struct Context {
  std::string name;
  std::string endpoint;       // HOST:PORT
  std::string job_namespace;  // empty: "default"
};

// The file's content.
struct ContextFile {
  std::string current;  // empty: none
  std::vector<Context> contexts;

  const Context* Find(const std::string& name) const;  // nullptr where there is none of this name
};

// Path of the file: $XDG_CONFIG_HOME/megatrain/config.yaml, or below ~/.config.
std::string ContextPath();

// The file's content; an empty one where the file does not exist. kInvalidArgument "PATH:LINE: ..."
// for unknown keys, duplicate names, a malformed endpoint, or a current context that is not
// defined.
StatusOr<ContextFile> ReadContexts(const std::string& path);
// Replaces the file and creates its folder.
Status WriteContexts(const std::string& path, const ContextFile& file);

// The context of this name; kNotFound lists the existing ones.
StatusOr<Context> NamedContext(const ContextFile& file, const std::string& name);

}  // namespace mt::client
