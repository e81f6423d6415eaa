// From tree to message by reflection: the fields of job.proto decide how each node is read, so a
// new field needs no code here.
#include "common/spec/parse.h"

#include <optional>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include "common/base/files.h"
#include "common/spec/complete.h"
#include "common/spec/fault_list.h"
#include "common/spec/known_words.h"
#include "common/spec/number.h"
#include "common/spec/text_forms.h"
#include "common/spec/tree.h"
#include "common/spec/validate.h"
#include "common/spec/values.h"
#include "megatrain/v1/job.pb.h"
#include "megatrain/v1/options.pb.h"

namespace mt::spec {
namespace {

namespace v1 = megatrain::v1;
using Field = pb::FieldDescriptor;

// More than anybody reads; of further faults only the number is reported.
constexpr size_t kMaxFaults = 100;
constexpr size_t kMaxLabels = 64;

// Walks the tree and the message type in parallel.
class Reader {
 public:
  explicit Reader(FaultList* faults) : faults_(faults) {}

  void ReadSection(const TreeNode& node, const std::string& path, pb::Message* message) {
    if (node.kind == TreeNode::Kind::kNull) return;
    if (node.kind != TreeNode::Kind::kMap) {
      faults_->Add(path, path.empty() ? "expected a job: fields with values"
                                      : "expected a section: fields with values");
      return;
    }
    const pb::Descriptor& type = *message->GetDescriptor();
    for (size_t i = 0; i < node.keys.size(); ++i) {
      const std::string& key = node.keys[i];
      const TreeNode& value = node.items[i];
      const Field* field = type.FindFieldByName(key);
      const std::string field_path = Under(path, Shown(key));
      if (field == nullptr) {
        faults_->Add(field_path, UnknownField(key, path, type));
      } else {
        ReadField(value, field_path, *field, message);
      }
    }
  }

 private:
  void ReadField(const TreeNode& node, const std::string& path, const Field& field,
                 pb::Message* message) {
    if (node.kind == TreeNode::Kind::kNull) {
      // The tokenizer named null is a value, although YAML reads the word as no value.
      const bool is_value =
          field.enum_type() != nullptr && FindEnumValue(*field.enum_type(), "null");
      if (is_value) Complain(path, SetFromText(field, "null", message));
      return;
    }
    if (field.is_map()) {
      ReadMap(node, path, field, message);
    } else if (IsSection(field)) {
      if (RuleOf(field).since() == v1::FEATURE_LATER) return RefuseSection(node, path);
      if (node.kind == TreeNode::Kind::kMap && node.keys.empty()) return;
      ReadSection(node, path, message->GetReflection()->MutableMessage(message, &field));
    } else if (IsSourceList(field)) {
      ReadSources(node, path, field, message);
    } else if (field.is_repeated()) {
      const bool whole = RuleOf(field).unit() == v1::UNIT_TEXT;
      for (const std::string& item : Items(node, path, whole)) {
        Complain(path, SetFromText(field, item, message));
      }
    } else {
      ReadScalar(node, path, field, message);
    }
  }

  void ReadScalar(const TreeNode& node, const std::string& path, const Field& field,
                  pb::Message* message) {
    const v1::FieldRule& rule = RuleOf(field);
    if (node.kind == TreeNode::Kind::kList && rule.list()) {
      return Complain(path, SetFromText(field, Join(Items(node, path), ","), message));
    }
    if (node.kind != TreeNode::Kind::kScalar) {
      return faults_->Add(path, "expected one value, not a list or section");
    }
    if (!node.quoted && MeansUnset(node.scalar, field)) return;
    Complain(path, SetFromText(field, node.scalar, message));
  }

  static bool MeansUnset(std::string_view text, const Field& field) {
    if (text == "auto") return DefaultsToAuto(field);
    if (text != "none" || !RuleOf(field).default_().empty() || RuleOf(field).required())
      return false;
    return field.enum_type() == nullptr || FindEnumValue(*field.enum_type(), text) == nullptr;
  }

  void ReadMap(const TreeNode& node, const std::string& path, const Field& field,
               pb::Message* message) {
    if (node.kind != TreeNode::Kind::kMap)
      return faults_->Add(path, "expected a map of words to words");
    if (node.keys.size() > kMaxLabels) {
      return faults_->Add(path, fmt::format("more than {} entries", kMaxLabels));
    }
    const Field& key_field = *field.message_type()->map_key();
    const Field& value_field = *field.message_type()->map_value();
    for (size_t i = 0; i < node.keys.size(); ++i) {
      const std::string& key = node.keys[i];
      const TreeNode& value = node.items[i];
      const std::string entry_path = Under(path, Shown(key));
      if (value.kind != TreeNode::Kind::kScalar) {
        faults_->Add(entry_path, "expected a word");
        continue;
      }
      pb::Message* entry = message->GetReflection()->AddMessage(message, &field);
      std::string complaint = SetFromText(key_field, key, entry);
      if (complaint.empty()) complaint = SetFromText(value_field, value.scalar, entry);
      // An entry that was not read is told of once: half of one would be a fault of its own later.
      if (!complaint.empty()) message->GetReflection()->RemoveLast(message, &field);
      Complain(entry_path, std::move(complaint));
    }
  }

  // Reads prefixes, or alternating weights and prefixes where the count is even and every odd place
  // holds a number.
  void ReadSources(const TreeNode& node, const std::string& path, const Field& field,
                   pb::Message* message) {
    if (node.kind == TreeNode::Kind::kMap && node.keys == std::vector<std::string>{"file"} &&
        node.items[0].kind == TreeNode::Kind::kScalar) {
      auto* source =
          static_cast<v1::Data::Source*>(message->GetReflection()->AddMessage(message, &field));
      return source->set_file(node.items[0].scalar);
    }
    const std::vector<std::string> items = Items(node, path);
    bool pairs = !items.empty() && items.size() % 2 == 0;
    for (size_t i = 0; pairs && i < items.size(); i += 2) pairs = ParseReal(items[i]).has_value();
    for (size_t i = 0; i < items.size(); i += pairs ? 2 : 1) {
      auto* source =
          static_cast<v1::Data::Source*>(message->GetReflection()->AddMessage(message, &field));
      if (pairs) source->set_weight(ParseReal(items[i]).value_or(0));
      source->set_prefix(items[i + (pairs ? 1 : 0)]);
    }
  }

  // The items of a list, or of one comma-separated string, which is one item where it is `whole`.
  std::vector<std::string> Items(const TreeNode& node, const std::string& path,
                                 bool whole = false) {
    std::vector<std::string> out;
    if (node.kind == TreeNode::Kind::kScalar && whole) {
      out.push_back(node.scalar);
    } else if (node.kind == TreeNode::Kind::kScalar) {
      for (const std::string_view part : SplitList(node.scalar)) out.emplace_back(part);
    } else if (node.kind == TreeNode::Kind::kList) {
      for (const TreeNode& item : node.items) {
        if (item.kind == TreeNode::Kind::kScalar) {
          out.push_back(item.scalar);
        } else {
          faults_->Add(path, "expected a list of single values");
          return {};
        }
      }
    } else {
      faults_->Add(path, "expected a list");
    }
    return out;
  }

  void RefuseSection(const TreeNode& node, const std::string& path) {
    if (node.kind != TreeNode::Kind::kMap) return faults_->Add(path, "not supported yet");
    for (const std::string& key : node.keys)
      faults_->Add(Under(path, Shown(key)), "not supported yet");
  }

  void Complain(const std::string& path, std::string complaint) {
    if (!complaint.empty()) faults_->Add(path, std::move(complaint));
  }

  // With the one that was meant: by another program's word, by its spelling in this section, or in
  // another one.
  static std::string UnknownField(std::string_view key, const std::string& section,
                                  const pb::Descriptor& type) {
    std::string meant = FieldCalled(key);
    if (meant.empty()) meant = Nearest(key, FieldNames(type));
    if (meant.empty()) meant = FieldNamed(key);
    if (!meant.empty()) return fmt::format("unknown field; did you mean {}?", meant);
    return fmt::format("unknown field; `mtctl explain job{}{}` lists what there is",
                       section.empty() ? "" : ".", section);
  }

  FaultList* faults_;
};

Faults Bounded(Faults faults) {
  if (faults.size() <= kMaxFaults) return faults;
  const size_t more = faults.size() - kMaxFaults;
  faults.resize(kMaxFaults);
  faults.push_back({.path = "", .message = fmt::format("and {} more", more)});
  return faults;
}

}  // namespace

Faults ParseJob(std::string_view text, const std::vector<std::string>& overrides,
                v1::JobSpec* job) {
  job->Clear();
  FaultList faults;
  if (text.size() > kMaxTextBytes) {
    faults.Add("", fmt::format("the text has {} bytes; at most {} are accepted", text.size(),
                               kMaxTextBytes));
    return faults.Take();
  }
  StatusOr<TreeNode> tree = ParseTree(text);
  if (!tree.ok()) {
    faults.Add("", base::Message(tree.status()));
    return faults.Take();
  }
  for (const std::string& assignment : overrides) {
    const Status status = assignment.size() > kMaxTextBytes
                              ? base::InvalidArgument("--set: value too long")
                              : ApplyOverride(assignment, &*tree);
    if (!status.ok()) faults.Add("", base::Message(status));
  }
  Reader(&faults).ReadSection(*tree, "", job);
  return Bounded(faults.Take());
}

Faults LoadJob(std::string_view text, const std::vector<std::string>& overrides,
               const ValidateContext& context, v1::JobSpec* job) {
  Faults faults = ParseJob(text, overrides, job);
  // A text that is not a job at all gets one fault, not one for each required field.
  for (const Fault& fault : faults) {
    if (fault.path.empty()) return faults;
  }
  return Bounded(CompleteAfter(std::move(faults), context, job));
}

Faults LoadJobFile(const std::string& path, const std::vector<std::string>& overrides,
                   const ValidateContext& context, v1::JobSpec* job) {
  const StatusOr<int64_t> size = base::FileSize(path);
  if (!size.ok()) return {{.path = path, .message = base::Message(size.status())}};
  if (*size > static_cast<int64_t>(kMaxTextBytes)) {
    return {
        {.path = path,
         .message = fmt::format("has {} bytes; at most {} are accepted", *size, kMaxTextBytes)}};
  }
  const StatusOr<std::string> text = base::ReadFile(path);
  if (!text.ok()) return {{.path = path, .message = base::Message(text.status())}};
  return LoadJob(*text, overrides, context, job);
}

}  // namespace mt::spec
