// A knob that is written wrong ends the program: a test would pass for the wrong reason.
#include "tests/worker/comm/nccl_stand_in/knobs.h"

#include <cstdio>
#include <cstdlib>
#include <sstream>

namespace mt::comm::stand_in {
namespace {

void Set(const std::string& key, const std::string& value, Knobs* knobs) {
  if (key == "version") {
    knobs->version = std::atoi(value.c_str());
  } else if (key == "hang") {
    knobs->hang = std::atoll(value.c_str());
  } else if (key == "error") {
    knobs->error = std::atoll(value.c_str());
  } else if (key == "refuse") {
    knobs->refuse = std::atoll(value.c_str());
  } else if (key == "abort_ms") {
    knobs->abort_ms = std::atoll(value.c_str());
  } else if (key == "log") {
    knobs->log = value;
  } else {
    std::fprintf(stderr, "NCCL stand-in: MT_NCCL_STAND_IN has no knob %s\n", key.c_str());
    std::abort();
  }
}

}  // namespace

Knobs ReadKnobs(int rank) {
  Knobs knobs;
  const char* const text = std::getenv("MT_NCCL_STAND_IN");
  std::istringstream entries(text == nullptr ? "" : text);
  for (std::string entry; std::getline(entries, entry, ',');) {
    const size_t equals = entry.find('=');
    const size_t at = entry.rfind('@');
    if (at != std::string::npos && std::atoi(entry.c_str() + at + 1) != rank) continue;
    if (equals == std::string::npos) {
      Set(entry, "", &knobs);
      continue;
    }
    const size_t length = at == std::string::npos ? at : at - equals - 1;
    Set(entry.substr(0, equals), entry.substr(equals + 1, length), &knobs);
  }
  return knobs;
}

}  // namespace mt::comm::stand_in
