// By reflection, so that a field that is added later is cleaned as well.
#include "client/output/clean_message.h"

#include <string>
#include <vector>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include "common/base/plain_text.h"

namespace mt::client {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

void CleanString(Message* message, const FieldDescriptor& field) {
  const Reflection& reflection = *message->GetReflection();
  if (!field.is_repeated()) {
    reflection.SetString(message, &field, base::CleanText(reflection.GetString(*message, &field)));
    return;
  }
  for (int i = 0; i < reflection.FieldSize(*message, &field); ++i) {
    reflection.SetRepeatedString(
        message, &field, i, base::CleanText(reflection.GetRepeatedString(*message, &field, i)));
  }
}

void CleanNested(Message* message, const FieldDescriptor& field) {
  const Reflection& reflection = *message->GetReflection();
  if (!field.is_repeated()) return CleanMessage(reflection.MutableMessage(message, &field));
  for (int i = 0; i < reflection.FieldSize(*message, &field); ++i) {
    CleanMessage(reflection.MutableRepeatedMessage(message, &field, i));
  }
}

}  // namespace

void CleanMessage(Message* message) {
  std::vector<const FieldDescriptor*> set;
  message->GetReflection()->ListFields(*message, &set);
  for (const FieldDescriptor* field : set) {
    if (field->type() == FieldDescriptor::TYPE_STRING) CleanString(message, *field);
    if (field->type() == FieldDescriptor::TYPE_MESSAGE) CleanNested(message, *field);
  }
}

}  // namespace mt::client
