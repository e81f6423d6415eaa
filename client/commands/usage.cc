// The parser says which kind of fault it found; what was meant is looked for in the commands and
// flags as they are, and in a table of other programs' words.
#include "client/commands/usage.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string_view>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "client/commands/examples.h"
#include "common/base/plain_text.h"
#include "common/spec/fault.h"

namespace mt::client {
namespace {

using WordPair = std::pair<std::string_view, std::string_view>;

// kubectl's, Slurm's and other words for commands, with the command that is meant.
constexpr WordPair kCommandWords[] = {{"apply", "submit"},
                                      {"create", "submit"},
                                      {"run", "submit"},
                                      {"start", "submit"},
                                      {"launch", "submit"},
                                      {"train", "submit"},
                                      {"new", "init"},
                                      {"template", "init"},
                                      {"evaluate", "eval"},
                                      {"score", "eval"},
                                      {"scaffold", "init"},
                                      {"sbatch", "submit"},
                                      {"ls", "get jobs"},
                                      {"list", "get jobs"},
                                      {"ps", "get jobs"},
                                      {"jobs", "get jobs"},
                                      {"job", "get jobs"},
                                      {"squeue", "get jobs"},
                                      {"queue", "get jobs"},
                                      {"nodes", "get nodes"},
                                      {"sinfo", "get nodes"},
                                      {"top", "get jobs -w"},
                                      {"status", "describe"},
                                      {"show", "describe"},
                                      {"inspect", "describe"},
                                      {"log", "logs"},
                                      {"tail", "logs -f"},
                                      {"watch", "follow"},
                                      {"rm", "delete"},
                                      {"remove", "delete"},
                                      {"stop", "cancel"},
                                      {"abort", "cancel"},
                                      {"scancel", "cancel"},
                                      {"terminate", "kill"},
                                      {"suspend", "pause"},
                                      {"hold", "pause --hold"},
                                      {"release", "pause --release"},
                                      {"unpause", "resume"},
                                      {"continue", "resume"},
                                      {"restart", "resume"},
                                      {"edit", "update"},
                                      {"patch", "update"},
                                      {"set", "update"},
                                      {"config", "context"},
                                      {"graph", "plot"},
                                      {"chart", "plot"},
                                      {"curve", "plot"},
                                      {"history", "metrics"},
                                      {"save", "checkpoint"},
                                      {"trace", "profile"},
                                      {"check", "validate"},
                                      {"lint", "validate"},
                                      {"docs", "explain"},
                                      {"up", "dev up"},
                                      {"down", "dev down"},
                                      {"presets", "get presets"},
                                      {"tokenize", "data prepare"},
                                      {"preprocess", "data prepare"},
                                      {"drain", "node declare-dead"},
                                      {"backup", "admin backup"},
                                      {"api-resources", "get"},
                                      {"benchmark", "bench"}};

// The same for what `get` lists.
constexpr WordPair kResourceWords[] = {
    {"pods", "jobs"},      {"pod", "jobs"},         {"po", "jobs"},
    {"runs", "jobs"},      {"run", "jobs"},         {"experiments", "jobs"},
    {"all", "jobs"},       {"deployments", "jobs"}, {"no", "nodes"},
    {"workers", "nodes"},  {"slots", "nodes"},      {"gpus", "nodes"},
    {"ev", "events"},      {"ckpt", "checkpoints"}, {"ckpts", "checkpoints"},
    {"ops", "operations"}, {"models", "presets"},   {"model", "presets"}};

constexpr WordPair kFlagWords[] = {{"filename", "file"},       {"config", "file"},
                                   {"override", "set"},        {"label", "selector"},
                                   {"force", "yes"},           {"force", "overwrite"},
                                   {"server", "coordinator"},  {"endpoint", "coordinator"},
                                   {"address", "coordinator"}, {"host", "coordinator"},
                                   {"format", "output"},       {"tail", "lines"},
                                   {"watch", "follow"},        {"follow", "watch"},
                                   {"attach", "follow"},       {"all", "all-namespaces"},
                                   {"limit", "points"},        {"dryrun", "dry-run"},
                                   {"message", "reason"}};

template <size_t N>
std::string Looked(const WordPair (&words)[N], std::string_view word) {
  const auto at = std::ranges::find(words, word, &WordPair::first);
  return at == std::end(words) ? "" : std::string(at->second);
}

// The command that was reached, and how it is written: "mtctl get jobs".
struct Reached {
  const CLI::App* app;
  std::string path;
};

Reached Deepest(const CLI::App& root) {
  Reached out{&root, root.get_name()};
  while (!out.app->get_subcommands().empty()) {
    out.app = out.app->get_subcommands().back();
    out.path += " " + out.app->get_name();
  }
  return out;
}

std::vector<std::string> CommandNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  return names;
}

// True where the next word has to be a command.
bool TakesCommand(const CLI::App& app) {
  const bool positional = std::ranges::any_of(
      app.get_options(), [](const CLI::Option* option) { return option->get_positional(); });
  return !CommandNames(app).empty() && !positional;
}

// The flags that the command takes, its parents' included, without their dashes.
std::vector<std::string> FlagNames(const CLI::App* app) {
  std::vector<std::string> names;
  for (; app != nullptr; app = app->get_parent()) {
    for (const CLI::Option* option : app->get_options()) {
      const auto& longs = option->get_lnames();
      names.insert(names.end(), longs.begin(), longs.end());
    }
  }
  return names;
}

// The nearest of `names`, or else those that begin with the word, two at most: "a or b".
std::string Meant(const std::string& word, const std::vector<std::string>& names) {
  std::string nearest = spec::Nearest(word, names);
  if (!nearest.empty()) return nearest;
  std::string out;
  int found = 0;
  for (const std::string& name : names) {
    if (word.size() < 2 || !name.starts_with(word) || found == 2) continue;
    out += (found++ == 0 ? "" : " or ") + name;
  }
  return out;
}

std::string DidYouMean(const Reached& at, const std::string& meant) {
  return meant.empty() ? fmt::format("; see {} --help", at.path)
                       : fmt::format("; did you mean {}?", meant);
}

std::string UnknownFlag(const Reached& at, const std::string& arg) {
  const bool is_long = arg.starts_with("--");
  const std::string word = arg.substr(is_long ? 2 : 1, arg.find('=') - (is_long ? 2 : 1));
  const std::vector<std::string> names = FlagNames(at.app);
  const auto has = [&](const std::string& name) {
    return std::ranges::find(names, name) != names.end();
  };
  std::string meant;
  for (const auto& [other, ours] : kFlagWords) {
    if (meant.empty() && other == word && has(std::string(ours))) meant = ours;
  }
  if (meant.empty()) meant = is_long || word.size() > 1 ? Meant(word, names) : "";
  if (!meant.empty()) {
    const size_t both = meant.find(" or ");
    meant = both == std::string::npos
                ? "--" + meant
                : "--" + meant.substr(0, both) + " or --" + meant.substr(both + 4);
  }
  return fmt::format("no flag {}{}", arg.substr(0, arg.find('=')), DidYouMean(at, meant));
}

std::string UnknownWord(const Reached& at, const std::string& word) {
  const std::vector<std::string> names = CommandNames(*at.app);
  const bool is_get = at.app->get_name() == "get";
  if (!TakesCommand(*at.app))
    return fmt::format("'{}' is one word too many; see {} --help", word, at.path);
  std::string meant = is_get                            ? Looked(kResourceWords, word)
                      : at.app->get_parent() == nullptr ? Looked(kCommandWords, word)
                                                        : "";
  if (meant.empty()) meant = Meant(word, names);
  return fmt::format("no {} '{}'{}", is_get ? "resource" : "command", word, DidYouMean(at, meant));
}

// What follows `mark` in the text, or "".
std::string After(const std::string& text, const std::string& mark) {
  const size_t at = text.find(mark);
  return at == std::string::npos ? "" : text.substr(at + mark.size());
}

// The arguments that nothing takes, in their order.
std::vector<std::string> NotUnderstood(const CLI::App& root, const std::string& what) {
  std::vector<std::string> unknown = root.remaining(/*recurse=*/true);
  if (!unknown.empty()) return unknown;
  std::istringstream words(After(what, "not expected: "));  // the last one first
  for (std::string word; words >> word;) unknown.insert(unknown.begin(), word);
  return unknown;
}

std::string Missing(const Reached& at, const std::string& name) {
  const std::string example = FirstExample(at.path.substr(at.path.find(' ') + 1));
  const std::string what = name == "A subcommand" ? "say what of it" : name + " is missing";
  return what + (example.empty() ? fmt::format("; see {} --help", at.path)
                                 : fmt::format("; for example: {}", example));
}

// Of an option that has too few values, or too many.
std::string WrongCount(const std::string& what) {
  const std::string name = what.substr(0, what.find(':'));
  const std::string received = After(what, ": At Most 1 required but received ");
  if (received.empty()) return name + " needs a value";
  return fmt::format("{} is given {}: it takes one value", name,
                     received == "2" ? "twice" : received + " times");
}

// A range that is open to one side has its bound alone.
std::string RangeText(const std::string& what) {
  const size_t value = what.find("Value ");
  const size_t from = what.find(" not in range ");
  const size_t to = what.find(" to ", from == std::string::npos ? 0 : from);
  if (value == std::string::npos || from == std::string::npos || to == std::string::npos)
    return what;
  const std::string low = what.substr(from + 14, to - from - 14);
  const std::string high = what.substr(to + 4);
  const std::string given = what.substr(0, value) + what.substr(value + 6, from - value - 6);
  if (high.size() < 12) return fmt::format("{} is no number from {} to {}", given, low, high);
  // Open to one side: from 0 on, or above 0.
  const std::string number = what.substr(value + 6, from - value - 6);
  if (number.starts_with('-')) return given + " is below 0";
  return given + (number.find_first_not_of("0.") == std::string::npos ? " is not above 0"
                                                                      : " is no number");
}

std::string Fault(const Reached& at, const CLI::App& root, const CLI::ParseError& error) {
  const auto is = [&](CLI::ExitCodes code) {
    return error.get_exit_code() == static_cast<int>(code);
  };
  std::string what = error.what();
  const std::vector<std::string> unknown = NotUnderstood(root, what);
  if (!unknown.empty() && (is(CLI::ExitCodes::RequiredError) || is(CLI::ExitCodes::ExtrasError))) {
    const auto flag = std::ranges::find_if(
        unknown, [](const std::string& arg) { return arg.size() > 1 && arg[0] == '-'; });
    const bool command = flag != unknown.begin() && TakesCommand(*at.app);
    return command || flag == unknown.end() ? UnknownWord(at, unknown.front())
                                            : UnknownFlag(at, *flag);
  }
  if (is(CLI::ExitCodes::RequiredError))
    return Missing(at, what.substr(0, what.find(" is required")));
  if (is(CLI::ExitCodes::ConversionError)) {
    const std::string pair = After(what, "Could not convert: ");
    const size_t equals = pair.find(" = ");
    if (equals == std::string::npos) return what;
    return fmt::format("{}: '{}' is no number", pair.substr(0, equals), pair.substr(equals + 3));
  }
  if (is(CLI::ExitCodes::ArgumentMismatch)) return WrongCount(what);
  const size_t excludes = what.find(" excludes ");
  if (is(CLI::ExitCodes::ExcludesError) && excludes != std::string::npos)
    return fmt::format("{} and {} do not go together", what.substr(0, excludes),
                       what.substr(excludes + 10));
  const size_t needs = what.find(" requires ");
  if (is(CLI::ExitCodes::RequiresError) && needs != std::string::npos)
    return fmt::format("{} needs {}", what.substr(0, needs), what.substr(needs + 10));
  return RangeText(what);
}

}  // namespace

std::string UsageProblem(const CLI::App& app, const CLI::ParseError& error) {
  const Reached at = Deepest(app);
  return base::CleanLine(fmt::format("{}: {}", at.path, Fault(at, app, error)));
}

std::string NoCommand(const CLI::App& app, const std::string& path, const std::string& word) {
  return UnknownWord({&app, path}, word);
}

std::string NoSuchValue(const std::string& text, const std::vector<std::string>& names) {
  const std::string nearest = Meant(text, names);
  if (!nearest.empty()) return fmt::format("no '{}'; did you mean {}?", text, nearest);
  return fmt::format("'{}' is none of {}", text, fmt::join(names, ", "));
}

}  // namespace mt::client
