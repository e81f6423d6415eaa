// `mtctl completion bash|zsh|fish`: prints a completion script for the shell.
#include "client/output/completion.h"

#include <map>
#include <memory>

#include <CLI/CLI.hpp>

#include "client/commands/commands.h"
#include "client/commands/usage.h"

namespace mt::client {

void AddCompletion(const CommandContext& context) {
  CLI::App* command = context.app->add_subcommand(
      "completion", "Completion for a shell: source <(mtctl completion bash)");
  auto shell = std::make_shared<Shell>(Shell::kBash);
  const std::map<std::string, Shell> shells = {
      {"bash", Shell::kBash}, {"zsh", Shell::kZsh}, {"fish", Shell::kFish}};
  command->add_option("shell", *shell, "Which")
      ->required()
      ->transform(CLI::Validator(
          [shells](std::string& text) {
            const auto known = shells.find(text);
            if (known == shells.end()) return NoSuchValue(text, {"bash", "zsh", "fish"});
            text = std::to_string(static_cast<int>(known->second));
            return std::string();
          },
          "{bash,zsh,fish}"));
  command->callback([=, app = context.app, run = context.run, options = context.options] {
    *run = [=] {
      const ExitCode refused =
          RefuseFormat(*options, "completion", "leave -o out: the script is for the shell to read");
      return refused != kExitOk ? refused : PrintText(CompletionScript(*app, *shell));
    };
  });
}

}  // namespace mt::client
