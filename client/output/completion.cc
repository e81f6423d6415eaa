// The tables of commands and flags are generated from CLI11's description; the shell code that
// walks them is fixed text, shared by bash and zsh.
#include "client/output/completion.h"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

namespace mt::client {
namespace {

// One command as the shells see it. Values are words, or @jobs, @nodes, @contexts (which the script
// gets from mtctl), or @files.
struct CompletionEntry {
  std::string path;  // "get jobs"; "" for mtctl itself
  std::vector<std::string> commands, flags;
  std::vector<std::pair<std::string, std::string>> values;  // flag and what it takes
  std::string positional;
};

std::string Words(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : " ") + word;
  return out;
}

// The choices of an option whose validator shows {a,b,c}; empty for other options.
std::string Choices(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const size_t begin = type.find('{');
  const size_t end = type.find('}', begin == std::string::npos ? 0 : begin);
  if (begin == std::string::npos || end == std::string::npos) return "";
  std::string out = type.substr(begin + 1, end - begin - 1);
  std::replace(out.begin(), out.end(), ',', ' ');
  return out;
}

std::string ValuesOf(const CLI::Option& option) {
  std::string choices = Choices(option);
  if (!choices.empty()) return choices;
  const std::string& name = option.get_single_name();
  if (name == "job") return "@jobs";
  if (name == "node") return "@nodes";
  if (name == "context") return "@contexts";
  return "@files";
}

CompletionEntry MakeEntry(const CLI::App& app, const std::string& path) {
  CompletionEntry entry{.path = path};
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
    entry.commands.push_back(sub->get_name());
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional()) {
      if (entry.positional.empty()) entry.positional = ValuesOf(*option);
      continue;
    }
    std::vector<std::string> names;
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
    for (const std::string& name : names) {
      entry.flags.push_back(name);
      if (option->get_items_expected_max() > 0) entry.values.emplace_back(name, ValuesOf(*option));
    }
  }
  return entry;
}

void CollectEntries(const CLI::App& app, const std::string& path,
                    std::vector<CompletionEntry>* out) {
  out->push_back(MakeEntry(app, path));
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
    CollectEntries(*sub, path.empty() ? sub->get_name() : path + " " + sub->get_name(), out);
}

using EntryField = std::function<std::string(const CompletionEntry&)>;

// A shell function that prints one field of the command whose path is its first argument.
std::string ShellTable(const std::vector<CompletionEntry>& entries, const std::string& name,
                       bool fish, const EntryField& field) {
  std::string out = fish ? fmt::format("function {}\n  switch $argv[1]\n", name)
                         : fmt::format("{}() {{\n  case $1 in\n", name);
  for (const CompletionEntry& entry : entries) {
    const std::string text = field(entry);
    if (text.empty()) continue;
    out += fish ? fmt::format("    case '{}'\n      echo '{}'\n", entry.path, text)
                : fmt::format("    '{}') echo '{}' ;;\n", entry.path, text);
  }
  return out + (fish ? "  end\nend\n" : "  esac\n}\n");
}

// The same keyed by "PATH FLAG": prints what the flag takes, and nothing for a switch. Flags of
// mtctl itself are valid with every command.
std::string ValueTable(const std::vector<CompletionEntry>& entries, bool fish) {
  std::string out = fish ? "function __mtctl_values\n  switch \"$argv[1] $argv[2]\"\n"
                         : "__mtctl_values() {\n  case \"$1 $2\" in\n";
  std::string global;
  for (const CompletionEntry& entry : entries) {
    for (const auto& [flag, values] : entry.values) {
      const std::string key = entry.path.empty() ? fmt::format("*' {}'", flag)
                                                 : fmt::format("'{} {}'", entry.path, flag);
      const std::string fish_key = entry.path.empty() ? fmt::format("'* {}'", flag)
                                                      : fmt::format("'{} {}'", entry.path, flag);
      (entry.path.empty() ? global : out) +=
          fish ? fmt::format("    case {}\n      echo '{}'\n", fish_key, values)
               : fmt::format("    {}) echo '{}' ;;\n", key, values);
    }
  }
  return out + global + (fish ? "  end\nend\n" : "  esac\n}\n");
}

std::string ShellTables(const CLI::App& app, bool fish) {
  std::vector<CompletionEntry> entries;
  CollectEntries(app, "", &entries);
  const CompletionEntry root = entries.front();
  std::string out;
  out += ShellTable(entries, "__mtctl_commands", fish,
                    [](const CompletionEntry& e) { return Words(e.commands); });
  out += ShellTable(entries, "__mtctl_flags", fish, [&](const CompletionEntry& e) {
    return Words(e.flags) + (e.path.empty() ? "" : " " + Words(root.flags));
  });
  out += ShellTable(entries, "__mtctl_positional", fish,
                    [](const CompletionEntry& e) { return e.positional; });
  return out + ValueTable(entries, fish);
}

// Used by bash and zsh: finds the command on the line and the words that may complete it.
// __mtctl_ask turns @names into words. Reads the array `line` (without mtctl itself and the last
// word) and sets `reply`.
constexpr char kShared[] = R"sh(
__mtctl_ask() {
  case $1 in
    @jobs) mtctl "${place[@]}" --request-timeout 2 get jobs -o name 2>/dev/null ;;
    @nodes) mtctl "${place[@]}" --request-timeout 2 get nodes -o name 2>/dev/null ;;
    @contexts) mtctl context list -o name 2>/dev/null ;;
    *) echo "$1" ;;
  esac
}

# Where the cluster is travels to the questions above.
__mtctl_walk() {
  local word flag=
  cmd= place=() pending=
  for word in "${line[@]}"; do
    if [[ $word == = ]]; then continue; fi
    if [[ -n $pending ]]; then
      case $flag in --coordinator|--context|-n|--namespace) place+=("$flag" "$word") ;; esac
      pending=
      continue
    fi
    case $word in
      -*=*) ;;
      -*) flag=$word; pending=$(__mtctl_values "$cmd" "$word") ;;
      *) if [[ " $(__mtctl_commands "$cmd") " == *" $word "* ]]; then cmd="${cmd:+$cmd }$word"; fi ;;
    esac
  done
}

__mtctl_candidates() {
  local commands takes
  if [[ -n $pending ]]; then __mtctl_ask "$pending"; return; fi
  case $1 in
    -*) __mtctl_flags "$cmd" ;;
    *) commands=$(__mtctl_commands "$cmd") takes=$(__mtctl_positional "$cmd")
       if [[ -n $commands ]]; then echo "$commands"; fi
       if [[ -z $commands || $takes == @jobs ]]; then __mtctl_ask "$takes"; fi ;;
  esac
}
)sh";

constexpr char kBash[] = R"sh(
_mtctl() {
  local cur=${COMP_WORDS[COMP_CWORD]} cmd place pending words
  local -a line=("${COMP_WORDS[@]:1:COMP_CWORD-1}")
  if [[ $cur == = ]]; then cur=; fi
  __mtctl_walk
  words=$(__mtctl_candidates "$cur")
  if [[ $words == @files ]]; then COMPREPLY=($(compgen -f -- "$cur")); else COMPREPLY=($(compgen -W "$words" -- "$cur")); fi
}
complete -F _mtctl mtctl
)sh";

constexpr char kZsh[] = R"sh(
_mtctl() {
  emulate -L zsh
  local cur=${words[CURRENT]} cmd= pending= found
  local -a line place
  line=("${(@)words[2,CURRENT-1]}")
  __mtctl_walk
  found=$(__mtctl_candidates "$cur")
  if [[ $found == @files ]]; then _files; else compadd -- ${=found}; fi
}
if [[ $funcstack[1] == _mtctl ]]; then _mtctl; else compdef _mtctl mtctl; fi
)sh";

constexpr char kFish[] = R"sh(
function __mtctl_ask
  switch $argv[1]
    case @jobs
      mtctl $argv[2..] --request-timeout 2 get jobs -o name 2>/dev/null
    case @nodes
      mtctl $argv[2..] --request-timeout 2 get nodes -o name 2>/dev/null
    case @contexts
      mtctl context list -o name 2>/dev/null
    case @files
      __fish_complete_path (commandline -ct)
    case '*'
      string split -n ' ' -- $argv[1]
  end
end

function __mtctl_complete
  set -l line (commandline -opc)
  set -l cur (commandline -ct)
  set -l path ''
  set -l pending ''
  set -l flag ''
  set -l place
  for word in $line[2..]
    if test -n "$pending"
      contains -- $flag --coordinator --context -n --namespace; and set -a place $flag $word
      set pending ''
      continue
    end
    switch $word
      case '-*=*'
      case '-*'
        set flag $word
        set pending (__mtctl_values "$path" $word)
      case '*'
        if contains -- $word (string split -n ' ' -- (__mtctl_commands "$path"))
          set path (string trim -- "$path $word")
        end
    end
  end
  if test -n "$pending"
    __mtctl_ask "$pending" $place
  else if string match -q -- '-*' "$cur"
    __mtctl_ask (__mtctl_flags "$path")
  else if test -n (__mtctl_commands "$path" | string collect)
    __mtctl_ask (__mtctl_commands "$path")
    test "$(__mtctl_positional "$path")" = @jobs; and __mtctl_ask @jobs $place
  else
    __mtctl_ask (__mtctl_positional "$path") $place
  end
end
complete -c mtctl -f -a '(__mtctl_complete)'
)sh";

}  // namespace

std::string CompletionScript(const CLI::App& app, Shell shell) {
  switch (shell) {
    case Shell::kBash:
      return "# bash completion of mtctl: source <(mtctl completion bash)\n" +
             ShellTables(app, false) + kShared + kBash;
    case Shell::kZsh:
      return "#compdef mtctl\n# source <(mtctl completion zsh), or save as _mtctl in a folder of "
             "$fpath\n" +
             ShellTables(app, false) + kShared + kZsh;
    case Shell::kFish:
      return "# fish completion of mtctl: mtctl completion fish | source\n" +
             ShellTables(app, true) + kFish;
  }
  return "";
}

}  // namespace mt::client
