// A page is a list of sections; everything that a command says goes through Escaped.
#include "client/output/man_pages.h"

#include <sstream>
#include <string_view>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

namespace mt::client {
namespace {

// Exit codes of all commands, as client/README.md has them in full; a test compares the codes.
constexpr std::pair<int, std::string_view> kExitTexts[] = {
    {0, "done; of what follows a job: it succeeded"},
    {1, "the answer is no: not running, not the same state"},
    {2, "no connection to the coordinator, or no answer in time"},
    {3, "invalid input: a faulty job, an unknown job, a verb that its state does not allow"},
    {4, "the server failed, or an operation did"},
    {5, "interrupted; a followed job runs on"},
    {6, "input or output failed, or a checkpoint is damaged"},
    {8, "the time of a wait ran out"},
    {9, "the job failed or was cancelled"},
    {128, "bad arguments"}};

// Text that groff prints as it is.
std::string Escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else if ((c == '.' || c == '\'') && (out.empty() || out.back() == '\n')) {
      out.append("\\&").push_back(c);
    } else {
      out += c;
    }
  }
  return out;
}

std::string Capitals(std::string text) {
  for (char& c : text) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  return text;
}

std::string Head(const std::string& title, const std::string& version,
                 const std::string& description) {
  return fmt::format(".TH {} 1 \"\" \"{}\" \"Megatrain\"\n.SH NAME\n{} \\- {}\n",
                     Escaped(Capitals(title)), Escaped(version), Escaped(title),
                     Escaped(description));
}

// What the option takes, as --help says it: "TEXT", "{json,yaml}", "UINT [8]".
std::string Takes(const CLI::Option& option) {
  if (option.get_items_expected_max() == 0) return "";
  std::string out = option.get_type_name();
  if (!option.get_default_str().empty()) out += " [" + option.get_default_str() + "]";
  return out;
}

std::string OptionText(const CLI::Option& option) {
  const bool positional = option.get_positional();
  const std::string name = option.get_name(positional, /*all_options=*/true);
  const std::string takes = Takes(option);
  return fmt::format(".TP\n.B {}{}\n{}\n", Escaped(name),
                     takes.empty() ? "" : " \\fR" + Escaped(takes),
                     Escaped(option.get_description()));
}

// The options of a command; those that say nothing of themselves are left out.
std::string Options(const CLI::App& app) {
  std::string out;
  for (const bool positional : {true, false}) {
    for (const CLI::Option* option : app.get_options()) {
      if (option->get_positional() == positional && !option->get_description().empty())
        out += OptionText(*option);
    }
  }
  return out;
}

std::string Usage(const CLI::App& app, const std::string& path) {
  std::string out = fmt::format(".B {}\n", Escaped(path));
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_positional()) continue;
    const std::string& name = option->get_single_name();
    out += Escaped(option->get_required() ? name : "[" + name + "]") + "\n";
  }
  return out + "[options]\n";
}

// The examples that --help ends with.
std::string Examples(const CLI::App& app) {
  std::string out;
  std::istringstream lines(app.get_footer());
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("  mtctl ")) out += Escaped(line.substr(2)) + "\n";
  }
  return out.empty() ? "" : ".SH EXAMPLES\n.nf\n" + out + ".fi\n";
}

std::vector<const CLI::App*> Commands(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

// The commands below `app`, each with its options.
std::string Below(const CLI::App& app, const std::string& path) {
  std::string out;
  for (const CLI::App* command : Commands(app)) {
    const std::string name = path + " " + command->get_name();
    out += fmt::format(".SS {}\n{}.PP\n{}\n{}", Escaped(name), Usage(*command, name),
                       Escaped(command->get_description()), Options(*command));
    out += Below(*command, name);
  }
  return out;
}

std::string VerbPage(const CLI::App& verb, const std::string& root, const std::string& version) {
  const std::string path = root + " " + verb.get_name();
  std::string out = Head(root + "-" + verb.get_name(), version, verb.get_description());
  out += ".SH SYNOPSIS\n" + Usage(verb, path);
  const std::string options = Options(verb);
  if (!options.empty()) out += ".SH OPTIONS\n" + options;
  const std::string below = Below(verb, path);
  if (!below.empty()) out += ".SH COMMANDS\n" + below;
  out += Examples(verb);
  return out + fmt::format(".SH SEE ALSO\n.BR {} (1):\nflags of all commands, exit codes.\n",
                           Escaped(root));
}

}  // namespace

std::vector<ManPage> ManPages(const CLI::App& app, const std::string& version) {
  const std::string& root = app.get_name();
  std::string page = Head(root, version, "trains GPT models on a Megatrain cluster");
  page += ".SH SYNOPSIS\n" + Usage(app, root + " COMMAND");
  page += ".SH DESCRIPTION\n" + Escaped(app.get_description()) + "\n.SH COMMANDS\n";
  std::vector<ManPage> pages;
  for (const CLI::App* verb : Commands(app)) {
    page += fmt::format(".TP\n.BR {} (1)\n{}\n", Escaped(root + "-" + verb->get_name()),
                        Escaped(verb->get_description()));
    pages.push_back(
        {.file = root + "-" + verb->get_name() + ".1", .text = VerbPage(*verb, root, version)});
  }
  page += ".SH OPTIONS\nThey may stand before or behind the command.\n" + Options(app);
  page += ".SH EXIT STATUS\n";
  for (const auto& [code, text] : kExitTexts)
    page += fmt::format(".TP\n.B {}\n{}\n", code, Escaped(text));
  pages.insert(pages.begin(), {.file = root + ".1", .text = page});
  return pages;
}

}  // namespace mt::client
