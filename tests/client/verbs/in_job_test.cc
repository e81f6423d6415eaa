// `mtctl generate JOB --in-job`: what it asks for, how the texts are printed, and what it says
// where that fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/client/fake_coordinator.h"

namespace mt::client {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class InJobTest : public testing::Test {
 protected:
  void SetUp() override {
    server_.state().complete = [this](v1::Operation* operation) {
      operation->set_step(12);
      operation->set_result("texts after step 12");
      *operation->mutable_decoded() = decoded_;
    };
  }
  void Add(int prompt, int sample, const std::string& text, const std::string& finish = "tokens") {
    v1::DecodedText& one = *decoded_.add_texts();
    one.set_prompt(prompt);
    one.set_sample(sample);
    one.set_text(text);
    one.set_finish(finish);
  }
  Ran Generate(std::vector<std::string> args) {
    args.insert(args.begin(), {"generate", "tiny", "--in-job"});
    return Mtctl(&server_, std::move(args));
  }
  const v1::DecodeRequest& asked() { return server_.state().decoded; }

  FakeCoordinator server_;
  v1::DecodedTexts decoded_;
};

TEST_F(InJobTest, TheJobIsAskedAndItsTextIsPrinted) {
  Add(0, 0, "on a time");
  const Ran ran = Generate({"--prompt", "Once up", "--tokens", "8", "--stop", "."});
  EXPECT_EQ(ran.code, kExitOk) << ran.err;
  EXPECT_EQ(ran.out, "Once upon a time\n");
  EXPECT_EQ(ran.err, "tiny: texts after step 12\n");
  EXPECT_EQ(asked().job().name(), "tiny");
  EXPECT_NE(asked().request_id(), "");
  EXPECT_THAT(asked().generate().prompts(), ElementsAre("Once up"));
  EXPECT_THAT(asked().generate().stops(), ElementsAre("."));
  EXPECT_EQ(asked().generate().tokens(), 8);
  EXPECT_EQ(asked().generate().seed(), 1234);
  EXPECT_FALSE(server_.state().submitted.has_spec()) << "no job of its own";
}

TEST_F(InJobTest, SeveralTextsHaveHeadingsAndNothingIsObeyed) {
  Add(0, 0, "b\x1b[2J");
  Add(0, 1, "c", "positions");
  Add(1, 0, "y", "time");
  Add(1, 1, "", "time");
  const Ran ran =
      Generate({"--prompt", "a", "--prompt", "x", "--samples", "2", "--temperature", "0.5"});
  EXPECT_EQ(ran.code, kExitOk) << ran.err;
  EXPECT_EQ(ran.out,
            "== prompt 1, sample 1\nab\\x1b[2J\n== prompt 1, sample 2\nac\n"
            "== prompt 2, sample 1\nxy\n== prompt 2, sample 2\nx\n");
  EXPECT_THAT(ran.err, AllOf(HasSubstr("; 1 ended where the job's memory for texts does"),
                             HasSubstr("; 2 were not done in the time that a step waits")));
  EXPECT_EQ(asked().generate().samples(), 2);
  EXPECT_EQ(asked().generate().temperature(), 0.5);
}

TEST_F(InJobTest, ForPrograms) {
  Add(0, 0, "b");
  const Ran ran = Generate({"-o", "json", "--prompt", "a"});
  EXPECT_EQ(ran.code, kExitOk) << ran.err;
  const auto read = nlohmann::json::parse(ran.out);
  EXPECT_EQ(read.at("verb"), "decode");
  EXPECT_EQ(read.at("step"), 12);
  EXPECT_EQ(read.at("decoded").at("texts").at(0).at("text"), "b");
  EXPECT_EQ(ran.err, "");
}

TEST_F(InJobTest, WhatIsTheJobsOwnCannotBeChosen) {
  for (const std::vector<std::string>& flags :
       std::vector<std::vector<std::string>>{{"--step", "3"},
                                             {"--tag", "best"},
                                             {"--device", "cpu"},
                                             {"--precision", "fp32"},
                                             {"--threads", "2"},
                                             {"--tokenizer", "byte"},
                                             {"--local"},
                                             {"--wait"},
                                             {"--detach"},
                                             {"--data-root", "/data"},
                                             {"--logprobs", "-o", "json"}}) {
    EXPECT_EQ(Generate(flags).code, kExitUsage) << flags[0];
  }
  const Ran step = Mtctl(&server_, {"generate", "tiny:20", "--in-job"});
  EXPECT_EQ(step.code, kExitUsage);
  EXPECT_THAT(step.err, HasSubstr("name the job alone"));
  EXPECT_EQ(Mtctl(&server_, {"generate", "--in-job"}).code, kExitUsage);
  EXPECT_THAT(server_.state().request_ids, IsEmpty());
}

TEST_F(InJobTest, ARefusalAndAFailureAreTold) {
  server_.state().refuse = {grpc::StatusCode::FAILED_PRECONDITION,
                            "job 'tiny' has planned no memory for texts"};
  const Ran refused = Generate({});
  EXPECT_NE(refused.code, kExitOk);
  EXPECT_THAT(refused.err, HasSubstr("planned no memory for texts"));
  server_.state().refuse = grpc::Status::OK;
  server_.state().complete = [](v1::Operation* operation) {
    operation->mutable_error()->set_code(static_cast<int>(grpc::StatusCode::FAILED_PRECONDITION));
    operation->mutable_error()->set_message("nothing was written: the run ended after step 20");
  };
  const Ran failed = Generate({});
  EXPECT_NE(failed.code, kExitOk);
  EXPECT_THAT(failed.err,
              HasSubstr("generate --in-job of tiny failed: nothing was written: the run ended"));
  EXPECT_EQ(failed.out, "");
  const Ran for_programs = Generate({"-o", "json"});
  EXPECT_EQ(for_programs.code, failed.code);
  EXPECT_EQ(nlohmann::json::parse(for_programs.out).at("error").at("message"),
            "nothing was written: the run ended after step 20");
}

// Another client has asked since, before this one came for its texts.
TEST_F(InJobTest, TextsThatGaveWayAreSaid) {
  decoded_.set_left_out(true);
  const Ran ran = Generate({});
  EXPECT_NE(ran.code, kExitOk);
  EXPECT_THAT(ran.err, HasSubstr("are not kept any more"));
}

}  // namespace
}  // namespace mt::client
