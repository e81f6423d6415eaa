// CodedInputStream, with a limit per message.
#include "worker/node/ranks/unsent_messages.h"

#include <climits>

#include <google/protobuf/io/coded_stream.h>

#include "megatrain/v1/rank.pb.h"

namespace mt::node {

using google::protobuf::io::CodedInputStream;
using megatrain::v1::RankMessage;

bool ReadUnsent(std::string_view bytes, const std::function<void(const RankMessage&)>& visit) {
  if (bytes.size() > INT_MAX) return false;
  const int total = static_cast<int>(bytes.size());
  CodedInputStream in(reinterpret_cast<const uint8_t*>(bytes.data()), total);
  while (in.CurrentPosition() < total) {
    uint32_t size = 0;
    if (!in.ReadVarint32(&size)) return false;
    if (size > static_cast<uint32_t>(total - in.CurrentPosition())) return false;
    const auto limit = in.PushLimit(static_cast<int>(size));
    RankMessage message;
    if (!message.ParseFromCodedStream(&in) || in.BytesUntilLimit() != 0) return false;
    in.PopLimit(limit);
    visit(message);
  }
  return true;
}

}  // namespace mt::node
