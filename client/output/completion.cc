// The tables of commands and flags are generated from CLI11's description, those of a job file's
// fields from their declarations; the shell code that walks them is fixed text, shared by bash and
// zsh.
#include "client/output/completion.h"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "client/output/job_template.h"
#include "common/spec/field_words.h"

namespace mt::client {
namespace {

// One command as the shells see it. Values are words, or @jobs, @nodes, @contexts (which the script
// gets from mtctl), @fields, @live, @settings, @live_settings, @templates (see WordTable), or
// @files.
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

std::string ValuesOf(const CLI::Option& option, const std::string& path) {
  std::string choices = Choices(option);
  if (!choices.empty()) return choices;
  const std::string& name = option.get_single_name();
  if (name == "set") return path == "update" ? "@live_settings" : "@settings";
  if (name == "clear") return "@live";
  if (name == "field") return "@fields";
  if (name == "template") return "@templates";
  if (name == "job" || name == "vs") return "@jobs";
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
      if (entry.positional.empty()) entry.positional = ValuesOf(*option, path);
      continue;
    }
    std::vector<std::string> names;
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
    for (const std::string& name : names) {
      entry.flags.push_back(name);
      if (option->get_items_expected_max() > 0)
        entry.values.emplace_back(name, ValuesOf(*option, path));
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

// A shell function that prints the words of its argument.
std::string WordsFunction(
    const std::string& name,
    const std::vector<std::pair<std::string, std::vector<std::string>>>& words, bool fish) {
  std::string out = fish ? fmt::format("function {}\n  switch $argv[1]\n", name)
                         : fmt::format("{}() {{\n  case $1 in\n", name);
  for (const auto& [key, values] : words) {
    out += fish ? fmt::format("    case '{}'\n      echo '{}'\n", key, Words(values))
                : fmt::format("    {}) echo '{}' ;;\n", key, Words(values));
  }
  return out + (fish ? "  end\nend\n" : "  esac\n}\n");
}

// The fields of a job file that are built: by themselves and as the beginning of a setting, those
// that may change while a job lives apart; and what a field may be.
std::string FieldTables(bool fish) {
  std::vector<std::string> fields, live, settings, live_settings;
  std::vector<std::pair<std::string, std::vector<std::string>>> values;
  for (const spec::FieldWords& field : spec::AllFieldWords()) {
    if (!field.built) continue;
    fields.push_back(field.path);
    if (field.section) continue;
    settings.push_back(field.path + "=");
    if (field.live) live.push_back(field.path);
    if (field.live) live_settings.push_back(field.path + "=");
    if (!field.values.empty()) values.emplace_back(field.path, field.values);
  }
  return WordsFunction("__mtctl_words",
                       {{"@fields", fields},
                        {"@live", live},
                        {"@settings", settings},
                        {"@live_settings", live_settings},
                        {"@templates", TemplateNames()}},
                       fish) +
         WordsFunction("__mtctl_of_field", values, fish);
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
  return out + ValueTable(entries, fish) + FieldTables(fish);
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
    @fields|@live|@templates) __mtctl_words "$1" ;;
    @settings|@live_settings) __mtctl_setting "$1" "$2" ;;
    *) echo "$1" ;;
  esac
}

# A setting is FIELD=VALUE: the fields, or behind the = what this one may be.
__mtctl_setting() {
  local value
  if [[ $2 != *=* ]]; then __mtctl_words "$1"; return; fi
  for value in $(__mtctl_of_field "${2%%=*}"); do echo "${2%%=*}=$value"; done
}

# Where the cluster is travels to the questions above. bash takes model.norm=rm apart: `field` is
# then the word before the =.
__mtctl_walk() {
  local word flag= given=
  cmd= place=() pending= field=
  for word in "${line[@]}"; do
    if [[ $word == = ]]; then field=$given; continue; fi
    given= field=
    if [[ -n $pending ]]; then
      case $flag in --coordinator|--context|-n|--namespace) place+=("$flag" "$word") ;; esac
      case $pending in @settings|@live_settings) given=$word ;; esac
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
  if [[ -n $field ]]; then __mtctl_of_field "$field"; return; fi
  if [[ -n $pending ]]; then __mtctl_ask "$pending" "$1"; return; fi
  case $1 in
    -*) __mtctl_flags "$cmd" ;;
    *) commands=$(__mtctl_commands "$cmd") takes=$(__mtctl_positional "$cmd")
       if [[ -n $commands ]]; then echo "$commands"; fi
       if [[ -z $commands || $takes == @jobs || $takes == @fields ]]; then __mtctl_ask "$takes"; fi ;;
  esac
}
)sh";

constexpr char kBash[] = R"sh(
_mtctl() {
  local cur=${COMP_WORDS[COMP_CWORD]} cmd place pending field words
  local -a line=("${COMP_WORDS[@]:1:COMP_CWORD-1}")
  if [[ $cur == = ]]; then cur= line+=(=); fi
  __mtctl_walk
  words=$(__mtctl_candidates "$cur")
  if [[ $words == @files ]]; then COMPREPLY=($(compgen -f -- "$cur")); else COMPREPLY=($(compgen -W "$words" -- "$cur")); fi
  if [[ ${COMPREPLY[0]-} == *= ]]; then compopt -o nospace 2>/dev/null; fi
}
complete -F _mtctl mtctl
)sh";

constexpr char kZsh[] = R"sh(
_mtctl() {
  emulate -L zsh
  local cur=${words[CURRENT]} cmd= pending= field= found
  local -a line place
  line=("${(@)words[2,CURRENT-1]}")
  __mtctl_walk
  found=$(__mtctl_candidates "$cur")
  case $found in
    @files) _files ;;
    *'= '*) compadd -S '' -- ${=found} ;;
    *) compadd -- ${=found} ;;
  esac
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
    case @fields @live @templates
      string split -n ' ' -- (__mtctl_words $argv[1])
    case @settings @live_settings
      set -l parts (string split -m 1 = -- (commandline -ct))
      if test (count $parts) -eq 2
        for value in (string split -n ' ' -- (__mtctl_of_field $parts[1]))
          echo $parts[1]=$value
        end
      else
        string split -n ' ' -- (__mtctl_words $argv[1])
      end
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
    contains -- "$(__mtctl_positional "$path")" @jobs @fields
    and __mtctl_ask (__mtctl_positional "$path") $place
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
