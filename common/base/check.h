// Assertions for bugs, never for user input: CHECK(ok) << why prints file, line, both values and
// the reason, then aborts. In every build type. Input errors are Status (common/base/status.h).
#pragma once

#include <sstream>
#include <string>

namespace mt::base {

// Collects the streamed reason; its destructor prints one line to stderr and aborts.
class CheckFailure {
 public:
  CheckFailure(const char* file, int line, const std::string& condition);
  CheckFailure(const CheckFailure&) = delete;
  CheckFailure& operator=(const CheckFailure&) = delete;
  [[noreturn]] ~CheckFailure();
  std::ostream& stream() { return stream_; }

 private:
  std::ostringstream stream_;
};

template <class A, class B>
std::string DescribePair(const char* text, const A& a, const B& b) {
  std::ostringstream out;
  out << text << " (" << a << " vs " << b << ")";
  return out.str();
}

}  // namespace mt::base

#define CHECK(condition)                    \
  while (__builtin_expect(!(condition), 0)) \
  ::mt::base::CheckFailure(__FILE__, __LINE__, #condition).stream()

#define MT_CHECK_OP(a, op, b)                                                                     \
  while (__builtin_expect(!((a)op(b)), 0))                                                        \
  ::mt::base::CheckFailure(__FILE__, __LINE__, ::mt::base::DescribePair(#a " " #op " " #b, a, b)) \
      .stream()

#define CHECK_EQ(a, b) MT_CHECK_OP(a, ==, b)
#define CHECK_NE(a, b) MT_CHECK_OP(a, !=, b)
#define CHECK_LT(a, b) MT_CHECK_OP(a, <, b)
#define CHECK_LE(a, b) MT_CHECK_OP(a, <=, b)
#define CHECK_GT(a, b) MT_CHECK_OP(a, >, b)
#define CHECK_GE(a, b) MT_CHECK_OP(a, >=, b)
