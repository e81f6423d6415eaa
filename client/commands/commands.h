// The verbs of mtctl: each function adds its subcommand with its flags; parsing sets what is to be
// run.
#pragma once

#include <functional>

#include "client/session.h"

namespace CLI {
class App;
}

namespace mt::client {

struct CommandContext {
  CLI::App* app = nullptr;
  const GlobalOptions* options = nullptr;  // filled while parsing
  std::function<ExitCode()>* run = nullptr;
};

void AddSubmit(const CommandContext& context);
void AddValidate(const CommandContext& context);
void AddExplain(const CommandContext& context);
void AddGet(const CommandContext& context);
void AddDescribe(const CommandContext& context);
void AddLogs(const CommandContext& context);
void AddCancel(const CommandContext& context);
void AddWait(const CommandContext& context);
void AddData(const CommandContext& context);
void AddDev(const CommandContext& context);

}  // namespace mt::client
