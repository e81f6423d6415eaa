// The fields of a job file as words, for those who write about them instead of reading them:
// templates of job files and completion in shells. Pure; thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mt::spec {

// One field of the job file, or a section of them.
struct FieldWords {
  std::string path;  // "optimizer.lr"
  std::string help;
  bool section = false;
  bool built = false;        // it may be given; what is not built is refused
  bool live = false;         // it may change while the job is live
  std::string default_text;  // as in a job file, "auto" where it is derived; "": none, or required
  // What it may be: enum values that are built, true and false, names of presets, and auto where
  // that is the default; empty for numbers and text.
  std::vector<std::string> values;
};

// All of them in the order of job.proto, a section before its fields; made at the first call.
const std::vector<FieldWords>& AllFieldWords();
// The one at this path, or nullptr; it lives for ever.
const FieldWords* FindFieldWords(std::string_view path);

}  // namespace mt::spec
