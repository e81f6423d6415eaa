// Assertions for bugs, never for user input: CHECK(ok) << why prints file, line, condition and
// reason to stderr, CHECK_EQ and its kin both values too, and aborts. They are active in every
// build type. Errors of input are a Status (common/base/status.h).
#pragma once

#include <sstream>
#include <string>

namespace mt::base {

// Collects the streamed reason. Its destructor prints one line to stderr and aborts the process.
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

// The text of a failed comparison: "a == b (1 vs 2)". Both types must have an operator<<.
template <class A, class B>
std::string DescribePair(const char* text, const A& a, const B& b) {
  std::ostringstream out;
  out << text << " (" << a << " vs " << b << ")";
  return out.str();
}

}  // namespace mt::base

// A while loop instead of an if: an `else` that follows cannot bind to it, and the loop never comes
// round, since the destructor of CheckFailure does not return.
#define CHECK(condition)                    \
  while (__builtin_expect(!(condition), 0)) \
  ::mt::base::CheckFailure(__FILE__, __LINE__, #condition).stream()

// Compares first, and evaluates `a` and `b` a second time for the message, so neither may have side
// effects.
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
