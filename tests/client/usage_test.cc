// What mtctl says to a mistyped command line: one line, the word that was meant, never a list of
// all and never the parser's words. And what it says when it is asked.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iomanip>
#include <sstream>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/files.h"
#include "tests/client/fake_coordinator.h"
#include "tests/paths.h"

namespace mt::client {
namespace {

using testing::HasSubstr;

// The line on stderr of a command line that is not understood.
std::string Said(const std::string& line) {
  std::istringstream words(line);
  std::vector<std::string> args;
  for (std::string word; words >> word;) args.push_back(word);
  const Ran ran = Mtctl(nullptr, args);
  EXPECT_EQ(ran.code, kExitUsage) << line << ": " << ran.err;
  EXPECT_EQ(ran.out, "") << line;
  EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
  return ran.err.substr(0, ran.err.find('\n'));
}

TEST(UsageTest, UnknownCommandsAndResources) {
  EXPECT_EQ(Said("sumbit"), "mtctl: no command 'sumbit'; did you mean submit?");
  EXPECT_EQ(Said("apply -f job.yaml"), "mtctl: no command 'apply'; did you mean submit?");
  EXPECT_EQ(Said("ls"), "mtctl: no command 'ls'; did you mean get jobs?");
  EXPECT_EQ(Said("frobnicate"), "mtctl: no command 'frobnicate'; see mtctl --help");
  EXPECT_EQ(Said("get pods"), "mtctl get: no resource 'pods'; did you mean jobs?");
  EXPECT_EQ(Said("get nodez"), "mtctl get: no resource 'nodez'; did you mean nodes?");
  EXPECT_EQ(Said("checkpoint lst x"),
            "mtctl checkpoint: 'x' is one word too many; see mtctl checkpoint --help");
  EXPECT_EQ(Said("node declare-ded n1"),
            "mtctl node: no command 'declare-ded'; did you mean declare-dead?");
  EXPECT_EQ(Said("help sumbit"), "mtctl: no command 'sumbit'; did you mean submit?");
}

TEST(UsageTest, UnknownFlags) {
  EXPECT_EQ(Said("submit --folow"), "mtctl submit: no flag --folow; did you mean --follow?");
  EXPECT_EQ(Said("submit --filename=x"), "mtctl submit: no flag --filename; did you mean --file?");
  EXPECT_EQ(Said("cancel x --force"), "mtctl cancel: no flag --force; did you mean --yes?");
  EXPECT_EQ(Said("get jobs --zzzz"), "mtctl get jobs: no flag --zzzz; see mtctl get jobs --help");
  // Flags of the root are known everywhere; a beginning is enough.
  EXPECT_EQ(Said("get jobs --coord h:1"),
            "mtctl get jobs: no flag --coord; did you mean --coordinator?");
}

TEST(UsageTest, ValuesAndWhatIsMissing) {
  EXPECT_EQ(Said("get jobs -o jason"), "mtctl get jobs: --output: no 'jason'; did you mean json?");
  EXPECT_EQ(Said("get jobs --color pink"),
            "mtctl get jobs: --color: 'pink' is none of always, auto, never");
  EXPECT_EQ(Said("completion bsh"), "mtctl completion: shell: no 'bsh'; did you mean bash?");
  EXPECT_EQ(Said("wait x --for state=runing"),
            "mtctl wait: --for: state: no 'RUNING'; did you mean RUNNING?");
  EXPECT_EQ(Said("wait x --for state=done"),
            "mtctl wait: --for: no state 'done'; did you mean SUCCEEDED?");
  EXPECT_EQ(Said("metrics x --points abc"),
            "mtctl metrics: --points: abc is no number from 1 to 10000");
  EXPECT_EQ(Said("wait x --timeout -1"), "mtctl wait: --timeout: -1 is below 0");
  EXPECT_EQ(Said("bench -f x --steps 0"), "mtctl bench: --steps: 0 is not above 0");
  EXPECT_EQ(Said("logs x --ranks a"), "mtctl logs: --ranks: 'a' is no number");
  EXPECT_EQ(Said("submit -f"), "mtctl submit: --file needs a value");
  EXPECT_EQ(Said("submit -f a -f b"), "mtctl submit: --file is given twice: it takes one value");
  EXPECT_EQ(Said("data prepare --input x --output a --output b --output c"),
            "mtctl data prepare: --output is given 3 times: it takes one value");
  EXPECT_EQ(Said("submit"),
            "mtctl submit: --file is missing; for example: mtctl submit -f job.yaml --follow");
  EXPECT_EQ(Said("pause"), "mtctl pause: job is missing; for example: mtctl pause gpt-demo --wait");
  EXPECT_EQ(Said("get"), "mtctl get: say what of it; for example: mtctl get jobs");
  EXPECT_EQ(Said("metrics x --all --points 3"),
            "mtctl metrics: --points and --all do not go together");
  EXPECT_EQ(Said("metrics x --min-interval 3"), "mtctl metrics: --min-interval needs --watch");
  EXPECT_EQ(Said("pause a b"), "mtctl pause: 'b' is one word too many; see mtctl pause --help");
}

TEST(UsageTest, SingularAndPluralAreTheSame) {
  FakeCoordinator server;
  server.state().jobs = {MakeJob("tiny", v1::RUNNING), MakeJob("other", v1::RUNNING)};
  server.state().nodes.add_nodes()->set_name("n1");
  EXPECT_EQ(Mtctl(&server, {"get", "job", "-o", "name"}).out, "tiny\nother\n");
  EXPECT_EQ(Mtctl(&server, {"get", "jobs", "other", "-o", "name"}).out, "other\n");
  EXPECT_EQ(Mtctl(&server, {"get", "job", "nobody"}).code, kExitInvalidInput);
  EXPECT_EQ(Mtctl(&server, {"get", "node", "-o", "name"}).out, "n1\n");
  for (const char* what : {"orphan", "operation", "event"})
    EXPECT_EQ(Mtctl(&server, {"get", what}).code, 0) << what;
  EXPECT_EQ(Mtctl(&server, {"get", "checkpoint", "tiny"}).code, 0);
  EXPECT_EQ(Mtctl(&server, {"describe", "nodes", "n1", "-o", "name"}).out, "n1\n");
}

TEST(UsageTest, PresetsAreListedWithoutACoordinator) {
  const Ran table = Mtctl(nullptr, {"get", "presets"});
  EXPECT_EQ(table.code, 0) << table.err;
  EXPECT_THAT(table.out,
              testing::ContainsRegex("\ngpt2-124m +124.44M +1.9 GiB +12 +768 +12 +1024"));
  EXPECT_THAT(Mtctl(nullptr, {"get", "preset", "-o", "name"}).out, HasSubstr("gpt2-124m\n"));
  EXPECT_THAT(Mtctl(nullptr, {"get", "presets", "-o", "jsonl"}).out,
              HasSubstr("{\"name\":\"gpt2-124m\",\"parameters\":124439808,"));
}

TEST(UsageTest, AnEmptyListSaysWhereItLooked) {
  FakeCoordinator server;
  EXPECT_EQ(Mtctl(&server, {"get", "jobs", "-n", "team"}).err,
            "no jobs in namespace team (-A looks in all); submit one: mtctl submit -f job.yaml "
            "--follow\n");
  EXPECT_EQ(Mtctl(&server, {"get", "jobs", "-A"}).err,
            "no jobs; submit one: mtctl submit -f job.yaml --follow\n");
}

std::vector<std::string> Verbs() {
  const std::string help = Mtctl(nullptr, {"--help"}).out;
  std::istringstream lines(help.substr(help.find("Subcommands:")));
  std::vector<std::string> verbs;
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line)) {
    if (line.size() < 3 || line[2] == ' ') continue;
    verbs.push_back(line.substr(2, line.find_first_of(" ,", 2) - 2));
  }
  return verbs;
}

std::vector<std::string> ExamplesIn(const std::string& help) {
  std::vector<std::string> out;
  std::istringstream lines(help.substr(std::min(help.find("Examples:"), help.size())));
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("  mtctl ")) out.push_back(line.substr(8));
  }
  return out;
}

TEST(UsageTest, HelpOfAVerbIsItsHelpFlag) {
  EXPECT_EQ(Mtctl(nullptr, {"help", "submit"}).out, Mtctl(nullptr, {"submit", "--help"}).out);
  EXPECT_EQ(Mtctl(nullptr, {"help", "checkpoint", "save"}).out,
            Mtctl(nullptr, {"checkpoint", "save", "--help"}).out);
  EXPECT_EQ(Mtctl(nullptr, {"help"}).out, Mtctl(nullptr, {"--help"}).out);
  EXPECT_EQ(Mtctl(nullptr, {"help", "attach"}).out, Mtctl(nullptr, {"follow", "--help"}).out);
}

// The pages say what --help says, and groff, where it is there, has nothing to say of them.
TEST(UsageTest, ManualPagesAreThoseOfHelp) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("mt-man-" + std::to_string(::getpid()));
  const Ran ran = Mtctl(nullptr, {"help", "--man", folder.string()});
  EXPECT_EQ(ran.code, 0) << ran.err;
  const bool groff = std::system("command -v groff > /dev/null") == 0;
  if (!groff) std::printf("groff is not installed: the pages are not printed\n");
  const auto read = [&](const std::string& name) {
    return base::ReadFile((folder / name).string()).value_or("");
  };
  const std::string root = read("mtctl.1");
  for (const std::string& verb : Verbs()) {
    EXPECT_THAT(root, HasSubstr(".BR mtctl\\-" + verb + " (1)\n"));
    const std::string page = read("mtctl-" + verb + ".1");
    EXPECT_THAT(page, HasSubstr("mtctl\\-" + verb + " \\- "));
    for (std::string example : ExamplesIn(Mtctl(nullptr, {verb, "--help"}).out)) {
      for (size_t at = 0; (at = example.find('-', at)) != std::string::npos; at += 2)
        example.insert(at, "\\");
      EXPECT_THAT(page, HasSubstr("\nmtctl " + example + "\n"));
    }
  }
  EXPECT_THAT(read("mtctl-plot.1"), HasSubstr(".B \\-\\-smooth \\fRN:POSITIVE\nExponential"));
  EXPECT_THAT(read("mtctl-checkpoint.1"), HasSubstr(".SS mtctl checkpoint verify\n"));
  const std::string readme = base::ReadFile(MT_SOURCE_DIR "/client/README.md").value();
  for (const char* code : {"0", "1", "2", "3", "4", "5", "6", "8", "9", "128"}) {
    EXPECT_THAT(readme, HasSubstr(std::string("\n| ") + code + " | "));
    EXPECT_THAT(root, HasSubstr(std::string(".B ") + code + "\n"));
  }
  if (groff) {
    const std::string said = (folder / "said").string();
    const std::string command = "for page in " + folder.string() +
                                "/*.1; do groff -man -ww -Tutf8 -z $page; done > " + said + " 2>&1";
    EXPECT_EQ(std::system(command.c_str()), 0);
    EXPECT_EQ(base::ReadFile(said).value(), "");
  }
  EXPECT_EQ(Mtctl(nullptr, {"help", "submit", "--man", "x"}).code, kExitUsage);
  EXPECT_EQ(Mtctl(nullptr, {"help", "--man", "/proc/none"}).code, kExitIo);
  std::filesystem::remove_all(folder);
}

// Each verb's three examples are understood: whatever comes of them, it is no fault of the words.
TEST(UsageTest, EveryVerbHasThreeExamplesThatAreUnderstood) {
  const std::string folder =
      (std::filesystem::temp_directory_path() / ("mt-usage-examples-" + std::to_string(::getpid())))
          .string();
  std::filesystem::create_directories(folder + "/here");
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder + "/here");  // an example may write a file
  ::setenv("XDG_STATE_HOME", folder.c_str(), 1);
  FakeCoordinator server;
  ::setenv("XDG_CONFIG_HOME", folder.c_str(), 1);
  const std::vector<std::string> verbs = Verbs();
  EXPECT_GT(verbs.size(), 25U);
  for (const std::string& verb : verbs) {
    const std::vector<std::string> examples = ExamplesIn(Mtctl(nullptr, {verb, "--help"}).out);
    EXPECT_EQ(examples.size(), 3U) << verb;
    for (const std::string& example : examples) {
      if (example.starts_with("dev ")) continue;  // would start programs
      std::istringstream words(example);
      std::vector<std::string> args;
      for (std::string word; words >> std::quoted(word, '\'');) args.push_back(word);
      std::filesystem::remove_all(folder + "/megatrain");  // the context that an example made
      std::filesystem::remove(folder + "/here/job.yaml");
      // What follows a stream tries again until somebody answers.
      const bool follows = std::ranges::find(args, "-f") != args.end() && args[1] != "-f";
      const Ran ran = Mtctl(follows || args[0] == "logs" ? &server : nullptr, args);
      EXPECT_NE(ran.code, kExitUsage) << example << ": " << ran.err;
    }
  }
  ::unsetenv("XDG_STATE_HOME");
  ::setenv("XDG_CONFIG_HOME", "/nonexistent", 1);
  std::filesystem::current_path(before);
  std::filesystem::remove_all(folder);
}

// The README's lines, as they are written there.
TEST(UsageTest, TheCommandsOfTheReadmeAreUnderstood) {
  FakeCoordinator server;  // without jobs: each ends at once
  const std::string readme = base::ReadFile(MT_SOURCE_DIR "/README.md").value();
  const size_t begin = readme.find("```\n", readme.find("## Use it")) + 4;
  std::istringstream lines(readme.substr(begin, readme.find("```", begin) - begin));
  int understood = 0;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream commands(line.substr(0, line.find('#')));
    for (std::string command; std::getline(commands, command, ';');) {
      std::istringstream words(command);
      std::vector<std::string> args;
      for (std::string word; words >> word;)
        args.push_back(word == "JOB" ? "gpt-demo" : word == "NODE" ? "n1" : word);
      if (args.size() < 2 || args[1] == "dev" || args[1] == "init") continue;  // would start, write
      EXPECT_EQ(args[0], "mtctl") << command;
      args.erase(args.begin());
      const Ran ran = Mtctl(&server, args);
      EXPECT_NE(ran.code, kExitUsage) << command << ": " << ran.err;
      ++understood;
    }
  }
  EXPECT_GT(understood, 20);
}

}  // namespace
}  // namespace mt::client
