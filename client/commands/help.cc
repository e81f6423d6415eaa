// `mtctl help VERB`: what `mtctl VERB --help` prints; with --man all of it as manual pages.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "client/commands/commands.h"
#include "client/commands/usage.h"
#include "client/output/man_pages.h"
#include "common/base/files.h"
#include "common/rpc/version.h"

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

ExitCode WriteManPages(const CLI::App& root, const std::string& folder) {
  const Status made = base::MakeDirs(folder);
  if (!made.ok()) return Complain(made, kExitIo);
  const std::vector<ManPage> pages = ManPages(root, "mtctl " + std::string(rpc::Version()));
  for (const ManPage& page : pages) {
    const Status written = base::WriteFileAtomic(folder + "/" + page.file, page.text);
    if (!written.ok()) return Complain(written, kExitIo);
  }
  std::fprintf(stderr, "wrote %zu pages to %s; read one: man -l %s/mtctl-submit.1\n", pages.size(),
               folder.c_str(), folder.c_str());
  return kExitOk;
}

}  // namespace

void AddHelp(const CommandContext& context) {
  CLI::App* command =
      context.app->add_subcommand("help", "What a command does, its flags, examples");
  auto words = std::make_shared<std::vector<std::string>>();
  auto folder = std::make_shared<std::string>();
  auto* command_words =
      command->add_option("command", *words, "submit; or two words: checkpoint save");
  command->add_option("--man", *folder, "Write the manual pages of all commands to this folder")
      ->excludes(command_words);
  command->callback([=, root = context.app, run = context.run, options = context.options] {
    *run = [=] {
      const ExitCode refused = RefuseFormat(*options, "help", "leave -o out, or --man FOLDER");
      if (refused != kExitOk) return refused;
      return folder->empty() ? RunHelp(*root, *words) : WriteManPages(*root, *folder);
    };
  });
}

}  // namespace mt::client
