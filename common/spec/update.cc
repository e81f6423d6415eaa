// An update is applied to a copy, which is completed as a new job would be; the changes are the
// differences of the two jobs' texts.
#include "common/spec/update.h"

#include <algorithm>
#include <array>
#include <map>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include "common/spec/complete.h"
#include "common/spec/fault_list.h"
#include "common/spec/rules.h"
#include "common/spec/values.h"
#include "megatrain/v1/job.pb.h"
#include "megatrain/v1/options.pb.h"

namespace mt::spec {
namespace {

namespace v1 = megatrain::v1;
using Field = pb::FieldDescriptor;

constexpr std::array<std::string_view, 3> kLength = {
    "training.train_iters", "training.train_samples", "training.train_tokens"};
constexpr std::array<std::string_view, 4> kLayout = {"training.micro_batch_size",
                                                     "training.global_batch_size",
                                                     "training.batch_ramp", "placement.slots"};

std::string RefusalOf(const std::string& path) {
  if (std::ranges::find(kLength, path) != kLength.end())
    return "changing the run length is not supported yet";
  if (path.starts_with("parallel.") || std::ranges::find(kLayout, path) != kLayout.end())
    return "cannot change while the job lives: end it with a save, and submit a job that has it "
           "over "
           "the same checkpoint.directory";
  return "cannot change after the start";
}

// The message in *job that holds the field at `path`, with sections created on the way; nullptr
// where there is no such field.
pb::Message* Holder(const std::string& path, pb::Message* job, const Field** field) {
  size_t begin = 0;
  for (pb::Message* at = job;;) {
    const size_t dot = path.find('.', begin);
    const Field* next = at->GetDescriptor()->FindFieldByName(path.substr(begin, dot - begin));
    if (next == nullptr) return nullptr;
    if (dot == std::string::npos) {
      *field = next;
      return IsSection(*next) ? nullptr : at;
    }
    if (!IsSection(*next)) return nullptr;
    at = at->GetReflection()->MutableMessage(at, next);
    begin = dot + 1;
  }
}

bool SameValue(const pb::Message& a, const pb::Message& b, const Field& field) {
  if (!IsSet(a, field) || !IsSet(b, field)) return IsSet(a, field) == IsSet(b, field);
  if (!field.is_repeated()) return TextOf(a, field) == TextOf(b, field);
  const int size = a.GetReflection()->FieldSize(a, &field);
  if (size != b.GetReflection()->FieldSize(b, &field)) return false;
  for (int i = 0; i < size && field.message_type() == nullptr; ++i) {
    if (TextOf(a, field, i) != TextOf(b, field, i)) return false;
  }
  for (int i = 0; i < size && field.message_type() != nullptr; ++i) {
    if (a.GetReflection()->GetRepeatedMessage(a, &field, i).SerializeAsString() !=
        b.GetReflection()->GetRepeatedMessage(b, &field, i).SerializeAsString()) {
      return false;
    }
  }
  return true;
}

bool IsLabels(const Field& field) {
  return field.containing_type() == v1::JobSpec::descriptor() && field.name() == "labels";
}

void TakeFields(const v1::JobSpec& changes, v1::JobSpec* job, FaultList* faults) {
  const auto take = [&](const std::string& path, const pb::Message& from, const Field& field) {
    if (IsLabels(field)) return;
    const Field* same = nullptr;
    pb::Message* to = Holder(path, job, &same);
    if (SameValue(from, *to, field)) return;
    if (!RuleOf(field).live()) {
      faults->Add(path, RefusalOf(path));
      return;
    }
    const std::string complaint = SetFromText(field, TextOf(from, field), to);
    if (!complaint.empty()) faults->Add(path, complaint);
  };
  ForEachSetField(changes, "", take);
}

void ClearFields(const std::vector<std::string>& paths, v1::JobSpec* job, FaultList* faults) {
  for (const std::string& path : paths) {
    const Field* field = nullptr;
    pb::Message* holder = Holder(path, job, &field);
    if (holder == nullptr) {
      faults->Add(path, "no such field");
    } else if (!RuleOf(*field).live()) {
      faults->Add(path, RefusalOf(path));
    } else {
      holder->GetReflection()->ClearField(holder, field);
    }
  }
}

using TextMap = std::map<std::string, std::string>;

TextMap Texts(const v1::JobSpec& job) {
  TextMap texts;
  for (const auto& [name, value] : job.labels()) texts[fmt::format("labels.{}", name)] = value;
  ForEachSetField(job, "",
                  [&](const std::string& path, const pb::Message& message, const Field& field) {
                    if (RuleOf(field).live() && !field.is_repeated())
                      texts[path] = TextOf(message, field);
                  });
  return texts;
}

// Of a submission, not of its run.
constexpr std::array<std::string_view, 11> kOfSubmission = {"name",
                                                            "namespace",
                                                            "labels",
                                                            "checkpoint.directory",
                                                            "checkpoint.load",
                                                            "checkpoint.load_tag",
                                                            "checkpoint.load_kind",
                                                            "checkpoint.fresh",
                                                            "training.exit_at_iter",
                                                            "training.exit_interval",
                                                            "training.exit_after"};

// A list as "[a, b]", of messages with their fields in their order; entries of maps sorted.
std::string ListText(const pb::Message& message, const Field& field) {
  const pb::Reflection& reflection = *message.GetReflection();
  std::vector<std::string> items;
  for (int i = 0; i < reflection.FieldSize(message, &field); ++i) {
    if (field.message_type() == nullptr) {
      items.push_back(TextOf(message, field, i));
      continue;
    }
    std::vector<std::string> parts;
    ForEachSetField(reflection.GetRepeatedMessage(message, &field, i), "",
                    [&](const std::string&, const pb::Message& item, const Field& part) {
                      parts.push_back(TextOf(item, part));
                    });
    items.push_back(Join(parts, " "));
  }
  if (field.is_map()) std::ranges::sort(items);
  return fmt::format("[{}]", Join(items, ", "));
}

TextMap AllTexts(const v1::JobSpec& job) {
  TextMap texts;
  ForEachSetField(
      job, "", [&](const std::string& path, const pb::Message& message, const Field& field) {
        if (std::ranges::find(kOfSubmission, path) != kOfSubmission.end()) return;
        texts[path] = field.is_repeated() ? ListText(message, field) : TextOf(message, field);
      });
  return texts;
}

std::vector<FieldChange> Difference(const TextMap& old_texts, const TextMap& new_texts) {
  std::vector<FieldChange> changes;
  for (const auto& [path, text] : old_texts) {
    const auto found = new_texts.find(path);
    if (found == new_texts.end()) {
      changes.push_back({path, text, ""});
    } else if (found->second != text) {
      changes.push_back({path, text, found->second});
    }
  }
  for (const auto& [path, text] : new_texts) {
    if (!old_texts.contains(path)) changes.push_back({path, "", text});
  }
  std::ranges::sort(changes, {}, &FieldChange::path);
  return changes;
}

// What is asked of new jobs alone and the update breaks; a job from before that rule keeps what it
// has.
Faults NewFaults(const ValidateContext& context, v1::JobSpec* before, v1::JobSpec* after) {
  const auto faults_of = [&](v1::JobSpec* job) {
    FaultList found{Faults{}};
    CheckKeepEvery({.context = context, .job = job, .faults = &found});
    return found.Take();
  };
  Faults faults = faults_of(after);
  return FormatFaults(faults) == FormatFaults(faults_of(before)) ? Faults{} : faults;
}

}  // namespace

std::string ChangeText(const FieldChange& change) {
  const auto shown = [](const std::string& text) -> std::string_view {
    return text.empty() ? std::string_view("nothing") : text;
  };
  return fmt::format("{} {} -> {}", change.path, shown(change.before), shown(change.after));
}

std::vector<FieldChange> DifferencesOfJobs(const v1::JobSpec& before, const v1::JobSpec& after) {
  return Difference(AllTexts(before), AllTexts(after));
}

Faults ApplyUpdate(const ValidateContext& context, const Update& update, v1::JobSpec* job,
                   std::vector<FieldChange>* changes) {
  changes->clear();
  v1::JobSpec changed = *job;
  FaultList list{Faults{}};
  TakeFields(update.changes, &changed, &list);
  ClearFields(update.clear, &changed, &list);
  for (const auto& [name, value] : update.changes.labels())
    (*changed.mutable_labels())[name] = value;
  for (const std::string& name : update.remove_labels) changed.mutable_labels()->erase(name);
  Faults faults = list.Take();
  ValidateContext stored = context;
  stored.stored = true;
  if (faults.empty()) faults = CompleteJob(stored, &changed);
  if (faults.empty() && !context.stored) faults = NewFaults(stored, job, &changed);
  if (!faults.empty()) return faults;
  // What a job of an earlier version leaves open is what it stands for.
  v1::JobSpec before = *job;
  if (!CompleteJob(context, &before).empty()) before = *job;
  *changes = Difference(Texts(before), Texts(changed));
  *job = std::move(changed);
  return {};
}

}  // namespace mt::spec
