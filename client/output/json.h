// API messages as JSON for `-o json`: field names as in the .proto files, integers as numbers, enum
// values by name, a job's spec as its job file. Stable: scripts rely on it.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

namespace google::protobuf {
class Message;
}

namespace mt::client {

// Every field, unset ones with their default; fields of a oneof and optional messages only where
// set. NaN and infinities, which JSON lacks, become null.
nlohmann::ordered_json MessageToJson(const google::protobuf::Message& message);
// Indented by 2, with a newline at the end.
std::string JsonText(const google::protobuf::Message& message);

}  // namespace mt::client
