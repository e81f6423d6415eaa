// Whatever others put into an answer, mtctl writes nothing that a terminal would obey, and nothing
// that looks like a line of its own; what it writes for programs is still what was said.
#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/client/fake_coordinator.h"

namespace mt::client {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

constexpr char kPoison[] =
    "\x1b[2J\x07\r\xC2\x9B"
    "31m\xE2\x80\xAE\x7F\nState: FORGED";

// Every string field that is empty, in every message that is there.
void Poison(Message* message) {
  const auto& reflection = *message->GetReflection();
  const auto& descriptor = *message->GetDescriptor();
  for (int i = 0; i < descriptor.field_count(); ++i) {
    const FieldDescriptor* field = descriptor.field(i);
    if (field->type() == FieldDescriptor::TYPE_STRING && !field->is_repeated() &&
        reflection.GetString(*message, field).empty()) {
      reflection.SetString(message, field, kPoison);
    } else if (field->type() == FieldDescriptor::TYPE_STRING && field->is_repeated()) {
      reflection.AddString(message, field, kPoison);
    } else if (field->type() == FieldDescriptor::TYPE_MESSAGE && field->is_repeated()) {
      for (int k = 0; k < reflection.FieldSize(*message, field); ++k)
        Poison(reflection.MutableRepeatedMessage(message, field, k));
    } else if (field->type() == FieldDescriptor::TYPE_MESSAGE &&
               reflection.HasField(*message, field)) {
      Poison(reflection.MutableMessage(message, field));
    }
  }
}

class TerminalTest : public testing::Test {
 protected:
  void SetUp() override {
    v1::Job job = MakeJob("tiny", v1::FAILED);
    job.set_namespace_("default");
    job.add_conditions();
    job.add_ranks()->mutable_stall()->set_limit_ms(1);
    job.add_checkpoints()->set_step(20);
    job.mutable_spec()->set_name("tiny");
    (*job.mutable_spec()->mutable_labels())["team"] = kPoison;
    (*job.mutable_spec()->mutable_labels())[kPoison] = "b";
    Poison(&job);
    server_.state().jobs = {job};
    server_.state().watch = {job};
    v1::Node* node = server_.state().nodes.add_nodes();
    node->set_name("n1");
    v1::Slot* gpu = node->add_slots();
    gpu->set_device(v1::GPU);
    gpu->mutable_gpu()->set_memory_bytes(1);
    (*node->mutable_labels())[kPoison] = kPoison;
    Poison(node);
    v1::Event event;
    event.set_seq(1);
    event.set_cause(v1::INTERNAL);
    Poison(&event);
    server_.state().events = {event};
    server_.state().checkpoints.add_checkpoints()->set_step(20);
    Poison(&server_.state().checkpoints);
    server_.state().complete = [](v1::Operation* operation) { Poison(operation); };
  }
  static void ExpectHarmless(const std::string& text, const std::string& what) {
    for (const unsigned char c : text) {
      EXPECT_TRUE(c >= 0x20 || c == '\n') << what << ": byte " << int{c} << " in " << text;
    }
    for (const char* hidden : {"\x7F", "\xC2\x9B", "\xE2\x80\xAE"})
      EXPECT_THAT(text, Not(HasSubstr(hidden))) << what;
  }
  static std::string Line(const std::vector<std::string>& args) {
    std::string line;
    for (const std::string& arg : args) line += arg + " ";
    return line;
  }
  FakeCoordinator server_;
};

TEST_F(TerminalTest, NothingThatOthersWroteControlsIt) {
  const std::vector<std::vector<std::string>> commands = {{"get", "jobs"},
                                                          {"get", "nodes"},
                                                          {"get", "checkpoints", "tiny"},
                                                          {"get", "events"},
                                                          {"events", "-f"},
                                                          {"describe", "tiny"},
                                                          {"describe", "node", "n1"},
                                                          {"pause", "tiny"},
                                                          {"checkpoint", "tiny", "--wait"},
                                                          {"get", "operations"},
                                                          {"wait", "tiny"},
                                                          {"metrics", "tiny"},
                                                          {"follow", "tiny"},
                                                          {"version"}};
  for (const auto& command : commands) {
    for (const char* format : {"table", "wide", "name"}) {
      std::vector<std::string> args = command;
      args.insert(args.end(), {"-o", format});
      const Ran ran = Mtctl(&server_, args);
      ExpectHarmless(ran.out, Line(args));
      ExpectHarmless(ran.err, Line(args));
      for (const std::string& text : {ran.out, ran.err})
        EXPECT_THAT(text, Not(HasSubstr("\nState: FORGED"))) << Line(args);
    }
  }
}

TEST_F(TerminalTest, RowsAndKeysCannotBeForged) {
  const Ran jobs = Mtctl(&server_, {"get", "jobs"});
  EXPECT_EQ(std::count(jobs.out.begin(), jobs.out.end(), '\n'), 2) << jobs.out;
  const Ran nodes = Mtctl(&server_, {"get", "nodes", "-o", "wide"});
  EXPECT_EQ(std::count(nodes.out.begin(), nodes.out.end(), '\n'), 2) << nodes.out;
  const Ran event = Mtctl(&server_, {"events", "-f", "-o", "wide"});
  EXPECT_EQ(std::count(event.out.begin(), event.out.end(), '\n'), 1) << event.out;
  const Ran text = Mtctl(&server_, {"describe", "tiny"});
  EXPECT_THAT(text.out, HasSubstr("\\x1b[2J\\x07\\x0d\\u009b31m\\u202e\\x7f\n"
                                  "                  State: FORGED"));
}

TEST_F(TerminalTest, FailuresAreCleanedToo) {
  server_.state().refuse = grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, kPoison);
  for (const char* format : {"table", "json"}) {
    const Ran ran = Mtctl(&server_, {"kill", "tiny", "--yes", "-o", format});
    EXPECT_EQ(ran.code, kExitInvalidInput);
    ExpectHarmless(ran.err, "kill");
    EXPECT_THAT(ran.err, HasSubstr("\\x1b[2J"));
  }
}

TEST_F(TerminalTest, WhatProgramsReadIsFaithfulAndEscaped) {
  for (const char* format : {"json", "jsonl", "yaml"}) {
    for (const auto& command : std::vector<std::vector<std::string>>{
             {"get", "jobs"}, {"get", "nodes"}, {"describe", "tiny"}, {"get", "events"}}) {
      std::vector<std::string> args = command;
      args.insert(args.end(), {"-o", format});
      const Ran ran = Mtctl(&server_, args);
      ExpectHarmless(ran.out, Line(args));
      if (std::string(format) != "yaml" && command[0] == "get") {
        EXPECT_THAT(json::parse(ran.out).dump(), HasSubstr("FORGED"));
      }
    }
  }
  const json tree = json::parse(Mtctl(&server_, {"get", "jobs", "-o", "json"}).out);
  EXPECT_EQ(tree.at("jobs").at(0).at("message"), kPoison);
  EXPECT_EQ(tree.at("jobs").at(0).at("spec").at("labels").at("team"), kPoison);
}

TEST_F(TerminalTest, AWaitForALostNodeIsToldWithoutATerminalToo) {
  server_.state().operation_done = false;
  server_.state().complete = [](v1::Operation* operation) {
    operation->set_progress("ending the processes; node-b is lost");
    operation->add_lost_nodes("node-b");
  };
  const Ran lost = Mtctl(&server_, {"kill", "tiny", "--yes", "--timeout", "0.1"});
  EXPECT_EQ(lost.code, kExitTimedOut);
  EXPECT_THAT(lost.err, HasSubstr("kill: ending the processes; node-b is lost\n"));
  server_.state().complete = [](v1::Operation* operation) { operation->set_progress("saving"); };
  const Ran quiet = Mtctl(&server_, {"kill", "tiny", "--yes", "--timeout", "0.1"});
  EXPECT_THAT(quiet.err, Not(HasSubstr("saving")));
}

}  // namespace
}  // namespace mt::client
