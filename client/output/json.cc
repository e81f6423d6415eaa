// Protobuf messages to JSON by reflection instead of protobuf's own printer, which writes 64-bit
// integers as strings and drops defaults.
#include "client/output/json.h"

#include <cmath>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <nlohmann/json.hpp>

#include "common/base/plain_text.h"
#include "common/spec/print.h"
#include "megatrain/v1/job.pb.h"

namespace mt::client {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using nlohmann::ordered_json;

ordered_json Number(double value) {
  return std::isfinite(value) ? ordered_json(value) : ordered_json(nullptr);
}

// One value of a field; `index` selects an element of a repeated field, and is -1 otherwise.
ordered_json Value(const Message& m, const FieldDescriptor& f, int index) {
  const Reflection& r = *m.GetReflection();
  const bool one = index < 0;
  switch (f.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return one ? r.GetInt32(m, &f) : r.GetRepeatedInt32(m, &f, index);
    case FieldDescriptor::CPPTYPE_INT64:
      return one ? r.GetInt64(m, &f) : r.GetRepeatedInt64(m, &f, index);
    case FieldDescriptor::CPPTYPE_UINT32:
      return one ? r.GetUInt32(m, &f) : r.GetRepeatedUInt32(m, &f, index);
    case FieldDescriptor::CPPTYPE_UINT64:
      return one ? r.GetUInt64(m, &f) : r.GetRepeatedUInt64(m, &f, index);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return Number(one ? r.GetDouble(m, &f) : r.GetRepeatedDouble(m, &f, index));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return Number(one ? r.GetFloat(m, &f) : r.GetRepeatedFloat(m, &f, index));
    case FieldDescriptor::CPPTYPE_BOOL:
      return one ? r.GetBool(m, &f) : r.GetRepeatedBool(m, &f, index);
    case FieldDescriptor::CPPTYPE_ENUM:
      return (one ? r.GetEnum(m, &f) : r.GetRepeatedEnum(m, &f, index))->name();
    case FieldDescriptor::CPPTYPE_STRING:
      return one ? r.GetString(m, &f) : r.GetRepeatedString(m, &f, index);
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return MessageToJson(one ? r.GetMessage(m, &f) : r.GetRepeatedMessage(m, &f, index));
  }
  return nullptr;
}

ordered_json MapValue(const Message& m, const FieldDescriptor& f) {
  ordered_json out = ordered_json::object();
  const Reflection& r = *m.GetReflection();
  for (int i = 0; i < r.FieldSize(m, &f); ++i) {
    const Message& entry = r.GetRepeatedMessage(m, &f, i);
    const auto& descriptor = *f.message_type();
    out[entry.GetReflection()->GetString(entry, descriptor.map_key())] =
        Value(entry, *descriptor.map_value(), -1);
  }
  return out;
}

}  // namespace

// CleanText's "\\u..." is JSON's too.
std::string CleanJson(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\x7f') {
      out += "\\u007f";
    } else {
      out += c;
    }
  }
  return base::CleanText(out);
}

ordered_json MessageToJson(const Message& message) {
  if (message.GetDescriptor() == megatrain::v1::JobSpec::descriptor()) {
    return ordered_json::parse(spec::ToJson(static_cast<const megatrain::v1::JobSpec&>(message)));
  }
  ordered_json out = ordered_json::object();
  const auto& descriptor = *message.GetDescriptor();
  for (int i = 0; i < descriptor.field_count(); ++i) {
    const FieldDescriptor& field = *descriptor.field(i);
    if (field.has_presence() && !message.GetReflection()->HasField(message, &field)) continue;
    ordered_json& slot = out[field.name()];
    if (field.is_map()) {
      slot = MapValue(message, field);
    } else if (field.is_repeated()) {
      slot = ordered_json::array();
      const int n = message.GetReflection()->FieldSize(message, &field);
      for (int k = 0; k < n; ++k) slot.push_back(Value(message, field, k));
    } else {
      slot = Value(message, field, -1);
    }
  }
  return out;
}

std::string JsonText(const ordered_json& tree, int indent) {
  return CleanJson(tree.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace));
}

std::string JsonText(const Message& message) { return JsonText(MessageToJson(message), 2) + "\n"; }

}  // namespace mt::client
