// Job files to begin with: each template is valid as written, bare of its comments, and with what
// stands behind '#' taken in; a file that is there stays.
#include <algorithm>
#include <filesystem>
#include <sstream>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "client/output/job_template.h"
#include "common/base/files.h"
#include "common/spec/parse.h"
#include "common/spec/print.h"
#include "common/spec/validate.h"
#include "megatrain/v1/job.pb.h"
#include "tests/client/fake_coordinator.h"

namespace mt::client {
namespace {

using testing::HasSubstr;

std::vector<std::string> SplitLines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// The line with its setting taken in, or "" where there is none behind a '#'.
std::string TakenIn(const std::string& line) {
  const size_t at = line.find_first_not_of(' ');
  if (at == std::string::npos || line[at] != '#' || at + 1 >= line.size() || line[at + 1] == ' ')
    return "";
  return line.substr(0, at) + line.substr(at + 1);
}

std::string Joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

// The completed job as JSON; the text must have no fault.
nlohmann::json Completed(const std::string& text, const std::string& what) {
  megatrain::v1::JobSpec job;
  const spec::Faults faults = spec::LoadJob(text, {}, {}, &job);
  EXPECT_TRUE(faults.empty()) << what << "\n" << spec::FormatFaults(faults) << "\n" << text;
  return faults.empty() ? nlohmann::json::parse(spec::ToJson(job)) : nlohmann::json();
}

TEST(InitTest, EveryTemplateIsValidWithAndWithoutItsComments) {
  EXPECT_GT(TemplateNames().size(), 20U);
  for (const std::string& name : TemplateNames()) {
    const std::string text = JobTemplate(name, "", "job.yaml");
    const nlohmann::json job = Completed(text, name);
    std::vector<std::string> bare, all;
    for (const std::string& line : SplitLines(text)) {
      EXPECT_LE(line.size(), 100U) << line;
      const size_t at = line.find_first_not_of(' ');
      if (at != std::string::npos && line[at] != '#')
        bare.push_back(line.substr(0, line.find("  #", at)));
      all.push_back(TakenIn(line).empty() ? line : TakenIn(line));
    }
    EXPECT_EQ(Completed(Joined(bare), name + " without comments"), job);
    // What is shown is the default: taken in, only the examples and what the job then says itself
    // differ.
    nlohmann::json taken = Completed(Joined(all), name + " with everything");
    EXPECT_EQ(taken["labels"]["team"], "nlp") << name;
    taken.erase("labels");
    taken["resilience"].erase("deadline");
    EXPECT_EQ(taken, job) << name;
  }
}

TEST(InitTest, EverySettingBehindAHashStandsByItself) {
  for (const char* name : {"gpt2", "llama", "gpt2-124m", "llama3-8b"}) {
    const std::vector<std::string> lines = SplitLines(JobTemplate(name, "", "job.yaml"));
    int settings = 0;
    for (size_t i = 0; i < lines.size(); ++i) {
      if (TakenIn(lines[i]).empty()) continue;
      std::vector<std::string> one = lines;
      one[i] = TakenIn(lines[i]);
      (void)Completed(Joined(one), one[i]);
      ++settings;
    }
    EXPECT_GT(settings, 15) << name;
  }
}

TEST(InitTest, TemplatesAreWhatTheirNamesSay) {
  const nlohmann::json gpt = Completed(JobTemplate("gpt2", "", "f"), "gpt2");
  EXPECT_EQ(gpt["model"]["position"], "learned");
  EXPECT_EQ(gpt["placement"]["device"], "cpu");
  EXPECT_EQ(gpt["placement"]["slots"], 2);
  const nlohmann::json llama = Completed(JobTemplate("llama", "", "f"), "llama");
  EXPECT_EQ(llama["model"]["position"], "rope");
  EXPECT_EQ(llama["model"]["norm"], "rmsnorm");
  EXPECT_EQ(llama["model"]["activation"], "swiglu");
  EXPECT_EQ(llama["model"]["kv_heads"], 2);
  const nlohmann::json large = Completed(JobTemplate("gpt3-1.3b", "", "f"), "gpt3-1.3b");
  EXPECT_EQ(large["name"], "gpt3-1-3b");
  EXPECT_EQ(large["model"]["layers"], 24);
  EXPECT_EQ(large["optimizer"]["lr"], 2e-4);
  EXPECT_EQ(large["placement"]["device"], "gpu");
  EXPECT_EQ(JobTemplate("bert", "", "f"), "");
}

class InitFileTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("mt-init-" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
    file_ = folder_ / "job.yaml";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path folder_;
  std::string file_;
};

TEST_F(InitFileTest, WritesAFileAndSaysWhatIsNext) {
  const Ran ran = Mtctl(nullptr, {"init", "llama", "-f", file_, "--name", "mine"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(ran.out, "");
  EXPECT_THAT(ran.err, HasSubstr("wrote " + file_ + ": "));
  EXPECT_THAT(ran.err, HasSubstr("next: mtctl submit -f " + file_ + " --follow\n"));
  EXPECT_EQ(Completed(base::ReadFile(file_).value(), "file")["name"], "mine");
  const Ran valid = Mtctl(nullptr, {"validate", "-f", file_, "-o", "none"});
  EXPECT_EQ(valid.code, 0) << valid.err;
}

TEST_F(InitFileTest, AFileThatIsThereStays) {
  ASSERT_TRUE(base::WriteFileAtomic(file_, "mine\n").ok());
  const Ran refused = Mtctl(nullptr, {"init", "-f", file_});
  EXPECT_EQ(refused.code, kExitInvalidInput);
  EXPECT_EQ(refused.err, "mtctl: " + file_ +
                             " is there already; --overwrite replaces it, -f FILE writes "
                             "another\n");
  EXPECT_EQ(base::ReadFile(file_).value(), "mine\n");
  EXPECT_EQ(Mtctl(nullptr, {"init", "-f", file_, "--overwrite"}).code, 0);
  EXPECT_THAT(base::ReadFile(file_).value(), HasSubstr("name: gpt2-demo"));
  EXPECT_EQ(Mtctl(nullptr, {"init", "-f", "/nonexistent/job.yaml"}).code, kExitIo);
}

TEST_F(InitFileTest, StandardOutputNamesAndRefusals) {
  const Ran shown = Mtctl(nullptr, {"init", "gpt2-124m", "-f", "-"});
  EXPECT_EQ(shown.code, 0);
  EXPECT_EQ(shown.out, JobTemplate("gpt2-124m", "", "-"));
  EXPECT_EQ(Mtctl(nullptr, {"init", "-f", file_, "-o", "name"}).out, file_ + "\n");
  const Ran json = Mtctl(nullptr, {"init", "-f", file_, "-o", "json"});
  EXPECT_EQ(json.code, kExitUsage);
  EXPECT_THAT(json.err, HasSubstr("mtctl validate -f " + file_ + " -o json"));
  const Ran name = Mtctl(nullptr, {"init", "-f", folder_ / "other.yaml", "--name", "No Name"});
  EXPECT_EQ(name.code, kExitInvalidInput);
  EXPECT_THAT(name.err, HasSubstr("name"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "other.yaml"));
  EXPECT_EQ(Mtctl(nullptr, {"init", "lama"}).err,
            "mtctl init: template: no 'lama'; did you mean llama?\n");
  EXPECT_EQ(Mtctl(nullptr, {"init", "bert-large"}).err,
            "mtctl init: template: no template 'bert-large'; gpt2, llama, or one of mtctl get "
            "presets\n");
  EXPECT_EQ(Mtctl(nullptr, {"new"}).err, "mtctl: no command 'new'; did you mean init?\n");
  EXPECT_EQ(Mtctl(nullptr, {"init", "--force"}).err,
            "mtctl init: no flag --force; did you mean --overwrite?\n");
}

}  // namespace
}  // namespace mt::client
