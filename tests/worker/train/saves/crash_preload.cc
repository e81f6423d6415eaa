// For LD_PRELOAD before a program: with the hooks of crash_hooks.cc, kills the process as it begins
// an operation on files by name, as MT_CRASH_AT says ("TURN NAME", the nth of that name); without
// that, appends the name of each operation to the file MT_CRASH_NAMES. Files count below the folder
// MT_CRASH_ROOT. A name's numbers are "#", so that all checkpoints are alike.
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <regex>
#include <string>
#include <string_view>
#include <unistd.h>

#include "tests/common/base/crash_log.h"
#include "tests/common/base/crash_points.h"

namespace mt::crash {
namespace {

std::string TextOf(const char* variable) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? "" : text;
}

std::string RoleOfName(std::string_view path) {
  const size_t slash = path.rfind('/');
  std::string name(slash == std::string_view::npos ? path : path.substr(slash + 1));
  // What is written before a file gets its name.
  static const std::regex temporary("^(.*)\\.tmp\\.[A-Za-z0-9]{6}$");
  name = std::regex_replace(name, temporary, "new $1");
  static const std::regex digits("[0-9]+");
  return std::regex_replace(name, digits, "#");
}

// From the start of the process to its end.
class Preloaded {
 public:
  Preloaded() : names_(RoleOfName), log_(TextOf("MT_CRASH_ROOT")) {
    const std::string at = TextOf("MT_CRASH_AT");
    const size_t space = at.find(' ');
    if (space != std::string::npos) {
      left_ = std::atoi(at.c_str());
      name_ = at.substr(space + 1);
    }
    log_.SetFaults([this](const Operation& next) {
      Began(names_.Next(next));
      return Fault{};
    });
  }

 private:
  void Began(const std::string& name) {
    if (name_.empty()) {
      std::ofstream(TextOf("MT_CRASH_NAMES"), std::ios::app) << name << "\n";
    } else if (name == name_ && --left_ == 0) {
      ::kill(::getpid(), SIGKILL);
    }
  }

  OperationNames names_;
  std::string name_;
  int left_ = 0;
  CrashLog log_;
};

// Never destroyed: threads of the program may work on files to the last.
[[gnu::constructor]] void Begin() {
  if (std::getenv("MT_CRASH_ROOT") != nullptr) static const auto* const all = new Preloaded();
}

}  // namespace
}  // namespace mt::crash
