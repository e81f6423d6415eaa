// `mtctl help VERB`: what `mtctl VERB --help` prints.
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "client/commands/commands.h"
#include "client/commands/usage.h"

namespace mt::client {
namespace {

ExitCode RunHelp(const CLI::App& root, const std::vector<std::string>& words) {
  const CLI::App* app = &root;
  std::string path = root.get_name();
  for (const std::string& word : words) {
    const CLI::App* found = nullptr;
    for (const CLI::App* command : app->get_subcommands([](const CLI::App*) { return true; })) {
      if (command->check_name(word)) found = command;
    }
    if (found == nullptr)
      return Complain(base::InvalidArgument("{}", NoCommand(*app, path, word)), kExitUsage);
    app = found;
    path += " " + found->get_name();
  }
  return PrintText(app->get_formatter()->make_help(app, path, CLI::AppFormatMode::Normal));
}

}  // namespace

void AddHelp(const CommandContext& context) {
  CLI::App* command =
      context.app->add_subcommand("help", "What a command does, its flags, examples");
  auto words = std::make_shared<std::vector<std::string>>();
  command->add_option("command", *words, "submit; or two words: checkpoint save");
  command->callback([=, root = context.app, run = context.run] {
    *run = [=] { return RunHelp(*root, *words); };
  });
}

}  // namespace mt::client
