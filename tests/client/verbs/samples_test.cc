// `mtctl samples`, and `follow --samples`: what evaluations have written.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megatrain/v1/api.pb.h"
#include "tests/client/fake_coordinator.h"

namespace mt::client {
namespace {

using testing::HasSubstr;

class SamplesVerbTest : public testing::Test {
 protected:
  void SetUp() override {
    v1::Job job = MakeJob("tiny", v1::RUNNING);
    job.mutable_spec()->mutable_training()->mutable_eval()->add_prompts("Once");
    job.mutable_spec()->mutable_training()->mutable_eval()->set_every_iters(10);
    server_.state().jobs = {job, MakeJob("plain", v1::RUNNING)};
    server_.state().answer_history = [this](const v1::QueryHistoryRequest& request) {
      EXPECT_TRUE(request.samples());
      v1::History out;
      if (request.job().uid() != "uid-of-tiny") return out;
      for (const int step : steps_) {
        if (request.from_step() > step || (request.to_step() > 0 && request.to_step() < step))
          continue;
        auto& eval = *out.add_evals();
        eval.set_step(step);
        for (const char* const text : {" upon", " more\x1b[2J"}) {
          auto& sample = *eval.add_samples();
          sample.set_prompt("Once");
          sample.set_text(text);
          sample.set_finish("tokens");
        }
      }
      return out;
    };
  }
  FakeCoordinator server_;
  std::vector<int> steps_ = {10, 20};
};

TEST_F(SamplesVerbTest, ShowsTheNewestOneOrAll) {
  const std::string of_20 =
      "== step 20, prompt 1 of 2\nOnce upon\n== step 20, prompt 2 of 2\nOnce more\\x1b[2J\n";
  const Ran newest = Mtctl(&server_, {"samples", "tiny"});
  EXPECT_EQ(newest.code, 0);
  EXPECT_EQ(newest.out, of_20) << "what would control a terminal is written out";
  const Ran all = Mtctl(&server_, {"samples", "tiny", "--all"});
  EXPECT_THAT(all.out, HasSubstr("== step 10, prompt 1 of 2\n"));
  EXPECT_THAT(all.out, HasSubstr(of_20));
  const Ran one = Mtctl(&server_, {"samples", "tiny", "--step", "10"});
  EXPECT_THAT(one.out, HasSubstr("step 10"));
  EXPECT_THAT(one.out, testing::Not(HasSubstr("step 20")));
}

TEST_F(SamplesVerbTest, ForPrograms) {
  const Ran for_programs = Mtctl(&server_, {"samples", "tiny", "-o", "json"});
  EXPECT_EQ(for_programs.code, 0);
  EXPECT_THAT(for_programs.out, HasSubstr("\"prompt\": \"Once\""));
  EXPECT_THAT(for_programs.out, HasSubstr("more\\u001b[2J"));
  EXPECT_EQ(Mtctl(&server_, {"samples", "tiny", "--all", "-o", "name"}).out, "10\n20\n");
}

// One of before there were samples answers as ever, with steps, with evaluations or with both.
TEST_F(SamplesVerbTest, AnOlderCoordinatorDoesNotKnowSamples) {
  for (const bool has_steps : {true, false}) {
    for (const bool has_evals : {true, false}) {
      if (!has_steps && !has_evals) continue;
      server_.state().answer_history = [=](const v1::QueryHistoryRequest&) {
        v1::History out;
        if (has_steps) out.add_steps(10);
        if (has_evals) out.add_evals()->set_step(10);
        return out;
      };
      for (const std::vector<std::string>& how :
           std::vector<std::vector<std::string>>{{}, {"--step", "10"}, {"--all"}, {"-o", "json"}}) {
        std::vector<std::string> line = {"samples", "tiny"};
        line.insert(line.end(), how.begin(), how.end());
        const Ran ran = Mtctl(&server_, line);
        EXPECT_EQ(ran.code, kExitInvalidInput);
        EXPECT_THAT(ran.err, HasSubstr("the coordinator does not know samples"));
        EXPECT_EQ(ran.out, "");
      }
    }
  }
}

TEST_F(SamplesVerbTest, SaysWhyThereIsNothing) {
  const Ran none = Mtctl(&server_, {"samples", "plain"});
  EXPECT_NE(none.code, 0);
  EXPECT_THAT(none.err, HasSubstr("training.eval.prompts is empty"));
  const Ran other = Mtctl(&server_, {"samples", "tiny", "--step", "15"});
  EXPECT_NE(other.code, 0);
  EXPECT_THAT(other.err, HasSubstr("no samples of step 15"));
  steps_.clear();
  EXPECT_THAT(Mtctl(&server_, {"samples", "tiny"}).err, HasSubstr("after every 10 steps"));
  EXPECT_EQ(Mtctl(&server_, {"samples", "tiny", "--all", "--step", "10"}).code, kExitUsage);
}

}  // namespace
}  // namespace mt::client
