// A rank as a process of its own, whose output a test reads line by line.
#pragma once

#include <chrono>
#include <string>
#include <sys/types.h>
#include <vector>

#include "common/base/files.h"

namespace mt::comm {

// Killed by the destructor, unless it has ended. Used by one thread.
class MemberProcess {
 public:
  // `program`: of the build tree's bin. `environment`: "NAME=VALUE", beside this process's own.
  MemberProcess(const std::string& program, std::vector<std::string> arguments,
                std::vector<std::string> environment = {});
  ~MemberProcess();
  MemberProcess(const MemberProcess&) = delete;
  MemberProcess& operator=(const MemberProcess&) = delete;

  void Kill() const;
  void Signal(int number) const;
  // The next line it prints; "" at its end or after the deadline.
  std::string ReadLine(std::chrono::steady_clock::time_point deadline);
  // What is left of its output, until it closes it or the deadline passes.
  std::string ReadAll(std::chrono::steady_clock::time_point deadline);

 private:
  // False at the end of the output and after the deadline.
  bool Read(std::chrono::steady_clock::time_point deadline);

  pid_t pid_ = -1;
  base::Fd out_;
  std::string text_;
};

}  // namespace mt::comm
