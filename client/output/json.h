// API messages as JSON for `-o json`: field names as in the .proto files, integers as numbers, enum
// values by name, a job's spec in the form of its job file. The form is stable, as scripts rely on
// it. Pure.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace google::protobuf {
class Message;
}

namespace mt::client {

// Every field, with its default where unset; members of a oneof and optional messages only where
// set. NaN and infinities, which JSON lacks, become null.
nlohmann::ordered_json MessageToJson(const google::protobuf::Message& message);
// The same JSON, in UTF-8, with what a terminal would obey and JSON need not escape (U+007F to
// U+009F, marks of direction) escaped too. Pieces of whole characters may be cleaned one by one.
std::string CleanJson(std::string_view text);
// A tree as JSON text, on one line where `indent` is negative; as CleanJson has it.
std::string JsonText(const nlohmann::ordered_json& tree, int indent);
// The message's tree as text, indented by 2, with a final newline.
std::string JsonText(const google::protobuf::Message& message);

}  // namespace mt::client
