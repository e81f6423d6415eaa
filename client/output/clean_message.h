// Texts of an answer made fit for a terminal, in one place: names, reasons and messages come from
// other users, from ranks and from nodes. Answers for programs (-o json, jsonl, yaml) are left as
// they came; their printers escape. Pure.
#pragma once

namespace google::protobuf {
class Message;
}

namespace mt::client {

// Every string of the message and of those in it, keys and values of maps too, becomes
// base::CleanText of it. Bytes fields stay as they are.
void CleanMessage(google::protobuf::Message* message);

}  // namespace mt::client
