// The verbs of mtctl: each function adds its subcommand with its flags to the root. Parsing a verb
// sets what is to be run; nothing happens before parsing is complete.
#pragma once

#include <array>
#include <functional>

#include "client/session/session.h"

namespace CLI {
class App;
}

namespace mt::client {

// The parser and the state that its callbacks fill; all pointers are borrowed and live as long as
// the app.
struct CommandContext {
  CLI::App* app = nullptr;
  const GlobalOptions* options = nullptr;  // global flags, filled while parsing
  // Set by the verb that was parsed.
  std::function<ExitCode()>* run = nullptr;
};

void AddInit(const CommandContext& context);
void AddSubmit(const CommandContext& context);
void AddFollow(const CommandContext& context);
void AddBench(const CommandContext& context);
void AddValidate(const CommandContext& context);
void AddExplain(const CommandContext& context);
void AddGet(const CommandContext& context);
void AddDescribe(const CommandContext& context);
void AddEvents(const CommandContext& context);
void AddLogs(const CommandContext& context);
void AddMetrics(const CommandContext& context);
void AddPlot(const CommandContext& context);
void AddSamples(const CommandContext& context);
void AddTop(const CommandContext& context);
void AddWait(const CommandContext& context);
void AddPause(const CommandContext& context);
void AddResume(const CommandContext& context);
void AddCheckpoint(const CommandContext& context);
void AddProfile(const CommandContext& context);
void AddGenerate(const CommandContext& context);
void AddEval(const CommandContext& context);
void AddUpdate(const CommandContext& context);
void AddCancel(const CommandContext& context);
void AddKill(const CommandContext& context);
void AddDelete(const CommandContext& context);
void AddAdopt(const CommandContext& context);
void AddNode(const CommandContext& context);
void AddAdmin(const CommandContext& context);
void AddData(const CommandContext& context);
void AddTokenizer(const CommandContext& context);
void AddDev(const CommandContext& context);
void AddContext(const CommandContext& context);
void AddCompletion(const CommandContext& context);
void AddVersion(const CommandContext& context);
void AddHelp(const CommandContext& context);

// All verbs in the order of `mtctl --help`.
inline constexpr std::array kCommands = {
    AddInit,     AddSubmit,    AddFollow, AddBench,      AddValidate,   AddExplain,  AddGet,
    AddDescribe, AddEvents,    AddLogs,   AddMetrics,    AddPlot,       AddSamples,  AddTop,
    AddWait,     AddPause,     AddResume, AddCheckpoint, AddProfile,    AddGenerate, AddEval,
    AddUpdate,   AddCancel,    AddKill,   AddDelete,     AddAdopt,      AddNode,     AddAdmin,
    AddData,     AddTokenizer, AddDev,    AddContext,    AddCompletion, AddVersion,  AddHelp};

}  // namespace mt::client
