// The files of golden/: vocabularies and what other programs made of text with them.
#pragma once

#include <string>

#include "common/base/files.h"
#include "tests/paths.h"

namespace mt::data {

inline std::string GoldenPath(const std::string& name) {
  return MT_SOURCE_DIR "/tests/worker/data/tokenizer/golden/" + name;
}

// The text of the file.
inline std::string Golden(const std::string& name) {
  return base::ReadFile(GoldenPath(name)).value();
}

}  // namespace mt::data
