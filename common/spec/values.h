// Conversion of one scalar field between text and value, by its type and unit. Internal to
// common/spec. Pure; thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "common/spec/rules.h"

namespace mt::spec {

// Sets the field or, if it is a list, appends to it. Returns "" on success, else what is wrong and
// what would be accepted. Text with a unit is stored in canonical form. Ranges are not checked
// here.
std::string SetFromText(const pb::FieldDescriptor& field, std::string_view text,
                        pb::Message* message);

// The value as in YAML, without quotes: "90s", "64MiB", "cosine", "0.0006", "true". `index` selects
// a list's member.
std::string TextOf(const pb::Message& message, const pb::FieldDescriptor& field, int index = -1);

// The default from the field's rule in the form of TextOf; "" where there is none or it is derived.
std::string DefaultText(const pb::FieldDescriptor& field);

// Checks a string that has a unit (split, port range, length, name): "" where it is well-formed,
// else what would be accepted.
std::string CheckStringUnit(const pb::FieldDescriptor& field, const std::string& text);

}  // namespace mt::spec
