// mtctl in a shell: precedence of flag, environment and context; completion scripts run by the
// shells that are installed.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/session/contexts.h"
#include "client/session/session.h"
#include "tests/client/fake_coordinator.h"

namespace mt::client {
namespace {

using testing::HasSubstr;
using testing::Not;

class ShellTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "mt-shell-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    ::setenv("XDG_STATE_HOME", folder_.c_str(), 1);
    ::setenv("XDG_CONFIG_HOME", folder_.c_str(), 1);
    ClearEnvironment();
  }
  void TearDown() override {
    ClearEnvironment();
    ::unsetenv("XDG_CONFIG_HOME");
    std::filesystem::remove_all(folder_);
  }
  static void ClearEnvironment() {
    for (const char* name :
         {"MTCTL_COORDINATOR", "MTCTL_CONTEXT", "MTCTL_NAMESPACE", "MTCTL_OUTPUT"})
      ::unsetenv(name);
  }
  std::string Write(const std::string& name, const std::string& text) const {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path) << text;
    return path;
  }
  // The standard output of a shell command; *code receives its exit code.
  static std::string Shell(const std::string& command, int* code) {
    std::FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
    std::string out;
    std::array<char, 4096> buffer{};
    for (size_t n = 0; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
      out.append(buffer.data(), n);
    *code = ::pclose(pipe);
    return out;
  }
  std::string folder_;
};

TEST_F(ShellTest, FlagBeatsEnvironmentBeatsContextBeatsDevCluster) {
  const auto shown = [](std::vector<std::string> args) {
    args.insert(args.begin(), {"context", "show"});
    return Mtctl(nullptr, args).out;
  };
  // Somebody may listen at the default port, as a test of it does (session_test.cc).
  const Ran none = Mtctl(nullptr, {"context", "show"});
  if (none.code != kExitConnection) {
    EXPECT_THAT(none.out, HasSubstr("127.0.0.1:7070 (from the default)"));
  }
  std::filesystem::create_directories(folder_ + "/megatrain/dev");
  Write("megatrain/dev/endpoint", "127.0.0.1:1001\n");
  EXPECT_THAT(shown({}), HasSubstr("127.0.0.1:1001"));
  ASSERT_EQ(
      Mtctl(nullptr, {"context", "set", "lab", "--endpoint", "lab:1002", "--namespace", "nlp"})
          .code,
      0);
  ASSERT_EQ(Mtctl(nullptr, {"context", "set", "prod", "--endpoint", "prod:1003"}).code, 0);
  EXPECT_THAT(shown({}), HasSubstr("lab:1002 (from context lab)\nnamespace  nlp"));
  ASSERT_EQ(Mtctl(nullptr, {"context", "use", "prod"}).code, 0);
  EXPECT_THAT(shown({}), HasSubstr("prod:1003 (from context prod)\nnamespace  default"));
  ::setenv("MTCTL_CONTEXT", "lab", 1);
  EXPECT_THAT(shown({}), HasSubstr("lab:1002"));
  ::setenv("MTCTL_COORDINATOR", "env:1004", 1);
  EXPECT_THAT(shown({}), HasSubstr("env:1004 (from MTCTL_COORDINATOR)"));
  EXPECT_THAT(shown({"--context", "prod"}), HasSubstr("prod:1003"));
  EXPECT_THAT(shown({"--coordinator", "flag:1005", "--context", "prod"}), HasSubstr("flag:1005"));
  ::setenv("MTCTL_NAMESPACE", "vision", 1);
  EXPECT_THAT(shown({}), HasSubstr("namespace  vision"));
  EXPECT_THAT(shown({"-n", "audio"}), HasSubstr("namespace  audio"));
  EXPECT_EQ(Mtctl(nullptr, {"get", "jobs", "--context", "nowhere"}).code, kExitInvalidInput);
}

TEST_F(ShellTest, ContextsAreListedChangedAndDeleted) {
  EXPECT_EQ(Mtctl(nullptr, {"context", "set", "new"}).code, kExitInvalidInput);  // no endpoint
  EXPECT_EQ(Mtctl(nullptr, {"context", "set", "a", "--endpoint", "h:x"}).code, kExitInvalidInput);
  ASSERT_EQ(Mtctl(nullptr, {"context", "set", "a", "--endpoint", "h:1"}).code, 0);
  ASSERT_EQ(Mtctl(nullptr, {"context", "set", "b", "--endpoint", "h:2"}).code, 0);
  EXPECT_EQ(Mtctl(nullptr, {"context", "list"}).out,
            "CURRENT  NAME  ENDPOINT  NAMESPACE\n*        a     h:1       default\n"
            "         b     h:2       default\n");
  ASSERT_EQ(Mtctl(nullptr, {"context", "delete", "a"}).code, 0);
  EXPECT_EQ(Mtctl(nullptr, {"context", "list", "-o", "name"}).out, "b\n");
  EXPECT_EQ(Mtctl(nullptr, {"context", "use", "a"}).code, kExitInvalidInput);
  // Commands that need the file report the line of the error.
  Write("megatrain/config.yaml", "contexts:\n  - {name: a}\n");
  const Ran broken = Mtctl(nullptr, {"get", "jobs"});
  EXPECT_EQ(broken.code, kExitInvalidInput);
  EXPECT_THAT(broken.err, HasSubstr("config.yaml:2: context a needs an endpoint"));
  EXPECT_EQ(Mtctl(nullptr, {"explain", "job.name"}).code, 0);
}

TEST_F(ShellTest, TheEnvironmentSetsFlagsAndFlagsWin) {
  FakeCoordinator server;
  ::setenv("MTCTL_OUTPUT", "name", 1);
  server.state().jobs = {MakeJob("tiny", v1::RUNNING)};
  EXPECT_EQ(Mtctl(&server, {"get", "jobs"}).out, "tiny\n");
  EXPECT_THAT(Mtctl(&server, {"get", "jobs", "-o", "table"}).out, HasSubstr("STATE"));
}

// Completes the last of `words` by the script in bash, where `mtctl` is a function that lists jobs.
TEST_F(ShellTest, BashCompletesCommandsFlagsValuesAndJobs) {
  const std::string script = Write("mtctl.bash", Mtctl(nullptr, {"completion", "bash"}).out);
  int code = 0;
  EXPECT_EQ(Shell("bash -n " + script, &code), "");
  EXPECT_EQ(code, 0);
  const std::string driver = Write("driver.bash", R"sh(
source "$1"; shift
mtctl() { echo "asked: $*" >>"$LOG"; case "$*" in *"get jobs"*) echo gpt-demo; echo gpt-other;; *"get nodes"*) echo n1;; *"context list"*) echo lab;; esac; }
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
_mtctl
printf '%s\n' "${COMPREPLY[@]}"
)sh");
  const std::string log = folder_ + "/log";
  const auto complete = [&](const std::string& words) {
    return Shell("LOG=" + log + " bash " + driver + " " + script + " " + words, &code);
  };
  EXPECT_EQ(complete("mtctl pau"), "pause\n");
  EXPECT_EQ(complete("mtctl get no"), "nodes\n");
  EXPECT_EQ(complete("mtctl pause gpt-d"), "gpt-demo\n");
  EXPECT_EQ(complete("mtctl pause --hold ''"), "gpt-demo\ngpt-other\n");
  EXPECT_EQ(complete("mtctl pause --rel"), "--release\n");
  EXPECT_EQ(complete("mtctl pause --disc"), "--discard\n");
  EXPECT_EQ(complete("mtctl get jobs -o j"), "json\njsonl\n");
  EXPECT_EQ(complete("mtctl -o json get ch"),
            "checkpoints\n");                            // the value of a flag is not a command
  EXPECT_EQ(complete("mtctl --output = ya"), "yaml\n");  // bash splits --output=ya like this
  EXPECT_EQ(complete("mtctl node declare-dead ''"), "n1\n");
  EXPECT_EQ(complete("mtctl context use ''"), "lab\n");
  EXPECT_EQ(complete("mtctl completion z"), "zsh\n");
  EXPECT_EQ(complete("mtctl describe node ''"), "n1\n");
  EXPECT_EQ(complete("mtctl describe ''"), "job\nnode\ngpt-demo\ngpt-other\n");
  // The names come from the cluster that the command line selects.
  EXPECT_EQ(complete("mtctl --coordinator h:1 describe gpt-o"), "gpt-other\n");
  std::ifstream asked(log);
  const std::string lines{std::istreambuf_iterator<char>(asked), {}};
  EXPECT_THAT(lines, HasSubstr("asked: --coordinator h:1 --request-timeout 2 get jobs -o name"));
}

// bash takes FIELD=VALUE apart at the =; the words are those that it hands to the script.
TEST_F(ShellTest, BashCompletesFieldsPresetsAndTheirValues) {
  const std::string script = Write("mtctl.bash", Mtctl(nullptr, {"completion", "bash"}).out);
  const std::string driver = Write("driver.bash", R"sh(
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
_mtctl
printf '%s\n' "${COMPREPLY[@]}"
)sh");
  int code = 0;
  const auto complete = [&](const std::string& words) {
    return Shell("bash " + driver + " " + script + " mtctl " + words, &code);
  };
  EXPECT_EQ(complete("submit -f job.yaml --set optimizer.min"), "optimizer.min_lr=\n");
  EXPECT_EQ(complete("submit --set optimizer.lr = 1e-3 --set training.see"), "training.seed=\n");
  EXPECT_EQ(complete("validate --set model.norm ="), "layernorm\nrmsnorm\n");
  EXPECT_EQ(complete("validate --set model.norm = rms"), "rmsnorm\n");
  EXPECT_EQ(complete("bench --set = model.norm = rms"), "rmsnorm\n");  // --set=model.norm=rms
  EXPECT_EQ(complete("submit --set model.preset = gpt2-1"), "gpt2-124m\ngpt2-1558m\n");
  EXPECT_EQ(complete("submit --set model.bias = ''"), "true\nfalse\n");
  EXPECT_EQ(complete("submit --set optimizer.lr = ''"), "\n");  // a number
  EXPECT_EQ(complete("submit --set model.norm = rmsnorm --fol"), "--follow\n");
  EXPECT_EQ(complete("update gpt-demo --set checkpoint.every_i"), "checkpoint.every_iters=\n");
  EXPECT_EQ(complete("update gpt-demo --set optimizer.l"), "\n");  // not while the job lives
  EXPECT_EQ(complete("update gpt-demo --clear resilience."), "resilience.deadline\n");
  EXPECT_EQ(complete("explain optimizer.min"), "optimizer.min_lr\n");
  EXPECT_EQ(complete("explain sch"), "schedule\n");
  EXPECT_EQ(complete("explain model.moe"), "\n");  // not built
  EXPECT_EQ(complete("init lla"),
            "llama\nllama2-7b\nllama2-13b\nllama2-70b\nllama3-8b\nllama3-70b\n");
  EXPECT_EQ(complete("get pres"), "presets\n");
}

TEST_F(ShellTest, ZshAndFishTakeTheirScripts) {
  for (const char* shell : {"zsh", "fish"}) {
    const std::string text = Mtctl(nullptr, {"completion", shell}).out;
    EXPECT_THAT(text, HasSubstr("declare-dead"));
    EXPECT_THAT(text, HasSubstr("--request-timeout"));
    EXPECT_THAT(text, HasSubstr("layernorm rmsnorm"));
    EXPECT_THAT(text, HasSubstr("optimizer.min_lr="));
    const std::string script = Write(std::string("mtctl.") + shell, text);
    int code = 0;
    (void)Shell(std::string("command -v ") + shell, &code);
    if (code != 0) {
      std::printf("%s is not installed: its script is not run\n", shell);
      continue;
    }
    EXPECT_EQ(Shell(std::string(shell) + " -n " + script, &code), "");
    EXPECT_EQ(code, 0) << shell;
  }
  EXPECT_EQ(Mtctl(nullptr, {"completion", "tcsh"}).code, kExitUsage);
}

TEST_F(ShellTest, ANamespaceOfTheContextYieldsToTheJobFile) {
  ASSERT_EQ(Mtctl(nullptr, {"context", "set", "lab", "--endpoint", "h:1", "-n", "nlp"}).code, 0);
  const std::string body =
      "name: tiny\nmodel: {layers: 2, hidden_size: 32, heads: 2, seq_length: 32}\n"
      "data: {path: [text], tokenizer: {type: byte}}\n"
      "training: {train_iters: 4, micro_batch_size: 2, global_batch_size: 8}\n"
      "optimizer: {lr: 1.0e-3}\n";
  const std::string plain = Write("plain.yaml", body);
  const std::string named = Write("named.yaml", "namespace: own\n" + body);
  EXPECT_THAT(Mtctl(nullptr, {"validate", "-f", plain}).out, HasSubstr("namespace: nlp"));
  EXPECT_THAT(Mtctl(nullptr, {"validate", "-f", named}).out, HasSubstr("namespace: own"));
  EXPECT_THAT(Mtctl(nullptr, {"validate", "-f", named, "-n", "x"}).out, HasSubstr("namespace: x"));
}

}  // namespace
}  // namespace mt::client
