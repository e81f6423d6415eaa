// The failing half of CHECK: one line to stderr and abort(), without the logger, which may itself
// be what failed.
#include "common/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace mt::base {

CheckFailure::CheckFailure(const char* file, int line, const std::string& condition) {
  stream_ << "CHECK failed at " << file << ":" << line << ": " << condition << " ";
}

CheckFailure::~CheckFailure() {
  std::fprintf(stderr, "%s\n", stream_.str().c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace mt::base
