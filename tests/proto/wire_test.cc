// Holds the wire contract: everything in proto/megatrain/v1 that a peer, a stored record or a job
// file depends on is one line of tests/golden/wire.txt, and lines are only ever added. The lines
// come from the descriptors that the programs are linked with, not from the sources.
//
// To add to the contract, run this program with MT_GOLDEN_ADD=1: it appends the new lines. A line
// that no longer holds is an error always, since peers and files of earlier versions rely on it.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include "megatrain/v1/agent_state.pb.h"
#include "megatrain/v1/api.pb.h"
#include "megatrain/v1/event_file.pb.h"
#include "megatrain/v1/job.pb.h"
#include "megatrain/v1/job_training.pb.h"
#include "megatrain/v1/metric.pb.h"
#include "megatrain/v1/options.pb.h"
#include "megatrain/v1/rank.pb.h"
#include "megatrain/v1/reading.pb.h"
#include "megatrain/v1/step.pb.h"
#include "megatrain/v1/store.pb.h"
#include "megatrain/v1/trace.pb.h"
#include "megatrain/v1/types.pb.h"
#include "megatrain/v1/worker.pb.h"
#include "tests/paths.h"

namespace mt {
namespace {

namespace pb = google::protobuf;
namespace v1 = megatrain::v1;

constexpr char kGolden[] = MT_SOURCE_DIR "/tests/golden/wire.txt";

// A message of each file: the linker keeps only the generated code that is referred to.
std::vector<const pb::FileDescriptor*> Files() {
  return {v1::AllocationRecord::descriptor()->file(),
          v1::SubmitRequest::descriptor()->file(),
          v1::JobSpec::descriptor()->file(),
          v1::Training::descriptor()->file(),
          v1::FieldRule::descriptor()->file(),
          v1::RankMessage::descriptor()->file(),
          v1::RankReading::descriptor()->file(),
          v1::StoredJob::descriptor()->file(),
          v1::Job::descriptor()->file(),
          v1::StepRecord::descriptor()->file(),
          v1::Metric::descriptor()->file(),
          v1::JobTrace::descriptor()->file(),
          v1::EventFileRecord::descriptor()->file(),
          v1::Assign::descriptor()->file()};
}

std::string TypeOf(const pb::FieldDescriptor& field) {
  if (field.message_type() != nullptr) return field.message_type()->full_name();
  if (field.enum_type() != nullptr) return field.enum_type()->full_name();
  return field.type_name();
}

// proto3: "repeated" says what the wire has, "optional" that absence is told from zero.
std::string PresenceOf(const pb::FieldDescriptor& field) {
  if (field.is_map()) return "map";
  if (field.is_repeated()) return field.is_packed() ? "repeated packed" : "repeated";
  if (field.real_containing_oneof() != nullptr) {
    return "oneof " + field.real_containing_oneof()->name();
  }
  return field.has_presence() && field.message_type() == nullptr ? "optional" : "singular";
}

using Lines = std::vector<std::string>;

// What a job file depends on: how the text of a value is read, what an absent field means, and what
// names it elsewhere. Bounds and what is built may widen, so that they are no part of this.
void AddRule(const pb::FieldDescriptor& field, Lines* lines) {
  if (!field.options().HasExtension(v1::rule)) return;
  const v1::FieldRule& rule = field.options().GetExtension(v1::rule);
  const std::string name = "rule " + field.full_name();
  if (rule.has_default_())
    lines->push_back(fmt::format("{} default \"{}\"", name, rule.default_()));
  if (rule.has_unit()) lines->push_back(fmt::format("{} {}", name, v1::Unit_Name(rule.unit())));
  if (rule.has_root()) lines->push_back(fmt::format("{} {}", name, v1::Root_Name(rule.root())));
  if (rule.has_flag()) lines->push_back(fmt::format("{} flag {}", name, rule.flag()));
  if (rule.list()) lines->push_back(name + " list");
  if (rule.live()) lines->push_back(name + " live");
}

void AddField(const pb::FieldDescriptor& field, Lines* lines) {
  lines->push_back(fmt::format(
      "{} {} = {} {} {} json {}", field.is_extension() ? "extend" : "field", field.full_name(),
      field.number(), PresenceOf(field), TypeOf(field), field.json_name()));
  AddRule(field, lines);
}

void AddEnum(const pb::EnumDescriptor& type, Lines* lines) {
  for (int i = 0; i < type.value_count(); ++i) {
    lines->push_back(fmt::format("value {} {} = {}", type.full_name(), type.value(i)->name(),
                                 type.value(i)->number()));
  }
}

void AddMessage(const pb::Descriptor& message, Lines* lines) {
  lines->push_back("message " + message.full_name());
  for (int i = 0; i < message.field_count(); ++i) AddField(*message.field(i), lines);
  for (int i = 0; i < message.reserved_range_count(); ++i) {
    const pb::Descriptor::ReservedRange& range = *message.reserved_range(i);
    lines->push_back(
        fmt::format("reserved {} = {} to {}", message.full_name(), range.start, range.end - 1));
  }
  for (int i = 0; i < message.reserved_name_count(); ++i) {
    lines->push_back(fmt::format("reserved {} {}", message.full_name(), message.reserved_name(i)));
  }
  for (int i = 0; i < message.enum_type_count(); ++i) AddEnum(*message.enum_type(i), lines);
  for (int i = 0; i < message.nested_type_count(); ++i) {
    AddMessage(*message.nested_type(i), lines);
  }
}

void AddService(const pb::ServiceDescriptor& service, Lines* lines) {
  for (int i = 0; i < service.method_count(); ++i) {
    const pb::MethodDescriptor& method = *service.method(i);
    lines->push_back(
        fmt::format("method {} {}{} -> {}{}", method.full_name(),
                    method.client_streaming() ? "stream " : "", method.input_type()->full_name(),
                    method.server_streaming() ? "stream " : "", method.output_type()->full_name()));
  }
}

Lines Dump() {
  Lines lines;
  for (const pb::FileDescriptor* file : Files()) {
    for (int i = 0; i < file->message_type_count(); ++i) AddMessage(*file->message_type(i), &lines);
    for (int i = 0; i < file->enum_type_count(); ++i) AddEnum(*file->enum_type(i), &lines);
    for (int i = 0; i < file->extension_count(); ++i) AddField(*file->extension(i), &lines);
    for (int i = 0; i < file->service_count(); ++i) AddService(*file->service(i), &lines);
  }
  return lines;
}

Lines ReadGolden() {
  std::ifstream file(kGolden);
  Lines lines;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && line[0] != '#') lines.push_back(line);
  }
  return lines;
}

TEST(Wire, NoLineOfTheContractChanges) {
  const Lines golden = ReadGolden();
  ASSERT_GT(golden.size(), 900u) << kGolden;
  const Lines now = Dump();
  const std::set<std::string> held(now.begin(), now.end());
  for (const std::string& line : golden) {
    EXPECT_TRUE(held.contains(line)) << "changed or removed: " << line;
  }
}

TEST(Wire, EveryAdditionIsWrittenDown) {
  const Lines golden = ReadGolden();
  const std::set<std::string> known(golden.begin(), golden.end());
  const bool add = std::getenv("MT_GOLDEN_ADD") != nullptr;
  std::ofstream file;
  if (add) file.open(kGolden, std::ios::app);
  for (const std::string& line : Dump()) {
    if (known.contains(line)) continue;
    if (add) {
      file << line << "\n";
    } else {
      ADD_FAILURE() << "not in tests/golden/wire.txt (MT_GOLDEN_ADD=1 appends it): " << line;
    }
  }
}

TEST(Wire, EveryProtoFileIsCompared) {
  std::set<std::string> compared;
  for (const pb::FileDescriptor* file : Files()) {
    EXPECT_EQ(file->package(), "megatrain.v1") << file->name();
    compared.insert(file->name());
  }
  for (const auto& entry :
       std::filesystem::directory_iterator(MT_SOURCE_DIR "/proto/megatrain/v1")) {
    const std::string name = "megatrain/v1/" + entry.path().filename().string();
    EXPECT_TRUE(compared.contains(name)) << name << " is missing in Files()";
  }
}

}  // namespace
}  // namespace mt
