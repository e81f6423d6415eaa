// Plain strtol and strcmp: the shim links nothing but libc. Every option takes a value.
#include "worker/node/shim/options.h"

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace mt::node {
namespace {

bool ParseNumber(const char* text, long min, long max, long* out) {
  char* end = nullptr;
  errno = 0;
  const long value = std::strtol(text, &end, 10);
  if (errno != 0 || end == text || *end != '\0' || value < min || value > max) return false;
  *out = value;
  return true;
}

bool ParseInt(const char* text, int min, int* out) {
  long value = 0;
  if (!ParseNumber(text, min, INT_MAX, &value)) return false;
  *out = static_cast<int>(value);
  return true;
}

// Parses a core list such as "0-31,64-95", the kernel's notation.
bool ParseCpus(const char* text, ShimOptions* options) {
  options->has_cpus = true;
  for (const char* at = text;; ++at) {
    char* end = nullptr;
    errno = 0;
    const long first = std::strtol(at, &end, 10);
    long last = first;
    if (end == at || errno != 0 || first < 0) return false;
    if (*end == '-') {
      at = end + 1;
      last = std::strtol(at, &end, 10);
      if (end == at || errno != 0) return false;
    }
    if (last < first || last >= CPU_SETSIZE) return false;
    for (long core = first; core <= last; ++core)
      CPU_SET(static_cast<size_t>(core), &options->cpus);
    if (*end == '\0') return true;
    if (*end != ',') return false;
    at = end;
  }
}

bool Apply(const char* name, const char* value, ShimOptions* options) {
  if (std::strcmp(name, "--dir") == 0) {
    options->dir = value;
  } else if (std::strcmp(name, "--log") == 0) {
    options->log = value;
  } else if (std::strcmp(name, "--job") == 0) {
    options->job_uid = value;
  } else if (std::strcmp(name, "--epoch") == 0) {
    return ParseNumber(value, 0, LONG_MAX, &options->epoch);
  } else if (std::strcmp(name, "--rank") == 0) {
    return ParseInt(value, 0, &options->rank);
  } else if (std::strcmp(name, "--slot") == 0) {
    return ParseInt(value, 0, &options->slot);
  } else if (std::strcmp(name, "--stop-fd") == 0) {
    return ParseInt(value, 3, &options->stop_fd);
  } else if (std::strcmp(name, "--grace-ms") == 0) {
    return ParseInt(value, 0, &options->grace_ms);
  } else if (std::strcmp(name, "--log-max-mib") == 0) {
    return ParseInt(value, 1, &options->log_max_mib);
  } else if (std::strcmp(name, "--cpus") == 0) {
    return ParseCpus(value, options);
  } else {
    return false;
  }
  return true;
}

}  // namespace

bool ParseShimOptions(int argc, char** argv, ShimOptions* options) {
  int i = 1;
  for (; i < argc && std::strcmp(argv[i], "--") != 0; i += 2) {
    if (i + 1 >= argc || !Apply(argv[i], argv[i + 1], options)) {
      std::fprintf(stderr, "mt-shim: bad argument %s %s\n", argv[i],
                   i + 1 < argc ? argv[i + 1] : "(no value)");
      return false;
    }
  }
  if (i + 1 < argc) options->program = argv + i + 1;
  if (options->dir == nullptr || options->log == nullptr || options->job_uid == nullptr ||
      options->epoch < 0 || options->rank < 0 || options->slot < 0 || options->program == nullptr) {
    std::fprintf(
        stderr,
        "mt-shim: started by mt-worker as: mt-shim --dir DIR --log FILE --job UID --epoch E "
        "--rank R --slot S [--stop-fd N] [--grace-ms MS] [--log-max-mib N] [--cpus LIST] -- "
        "PROGRAM ARGS...\n");
    return false;
  }
  return true;
}

}  // namespace mt::node
