// `mtctl samples`, and `follow --samples`: what evaluations have written.
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
  const Ran json = Mtctl(&server_, {"samples", "tiny", "-o", "json"});
  EXPECT_EQ(json.code, 0);
  EXPECT_THAT(json.out, HasSubstr("\"prompt\": \"Once\""));
  EXPECT_THAT(json.out, HasSubstr("more\\u001b[2J"));
  EXPECT_EQ(Mtctl(&server_, {"samples", "tiny", "--all", "-o", "name"}).out, "10\n20\n");
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
