// Entries have ids besides their numbers, because an entry can be acknowledged or dropped while it
// is being written.
#include "worker/rank/send_queue.h"

#include <algorithm>
#include <utility>

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include "common/base/check.h"
#include "megatrain/v1/rank.pb.h"

namespace mt::rank {

using megatrain::v1::RankMessage;

namespace {

bool IsKept(const RankMessage& message) {
  return message.has_step() || message.has_job_report() || message.has_command_done();
}

}  // namespace

int64_t SendQueue::Push(RankMessage message) {
  Entry entry{.id = ++last_id_, .is_step = message.has_step(), .is_fault = message.has_fault()};
  if (IsKept(message)) {
    entry.seq = ++last_seq_;
    message.set_seq(entry.seq);
    if (message.has_job_report()) message.mutable_job_report()->set_rank_seq(entry.seq);
  }
  int64_t dropped = 0;
  if (entry.is_step && entries_.size() >= limit_) {
    dropped = Thin(entries_.size() / 2);
    if (dropped == 0) dropped = Thin(entries_.size());
  }
  entry.bytes = message.SerializeAsString();
  entries_.push_back(std::move(entry));
  return dropped;
}

bool SendQueue::Next(RankMessage* out) {
  if (nothing_to_write()) return false;
  const Entry& entry = entries_[next_];
  CHECK(out->ParseFromString(entry.bytes)) << "bytes of our own";
  in_flight_id_ = entry.id;
  handed_seq_ = std::max(handed_seq_, entry.seq);
  return true;
}

void SendQueue::Written() {
  const uint64_t id = std::exchange(in_flight_id_, 0);
  if (id == 0) return;
  // The entry may have been acknowledged or dropped in the meantime.
  if (nothing_to_write() || entries_[next_].id != id) return;
  if (entries_[next_].seq > 0) {
    ++next_;
  } else {
    entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(next_));
  }
}

void SendQueue::Rewind() {
  next_ = 0;
  in_flight_id_ = 0;
}

void SendQueue::Acked(int64_t seq) {
  // A message that was never returned by Next cannot have arrived. One that is being written may
  // have: its acknowledgement can overtake the return of the write.
  seq = std::min(seq, handed_seq_);
  for (size_t i = 0; i < entries_.size() && entries_[i].seq <= seq;) {
    if (entries_[i].seq == 0) {
      ++i;
      continue;
    }
    entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(i));
    if (i < next_) --next_;
  }
}

int64_t SendQueue::Thin(size_t count) {
  std::deque<Entry> kept;
  size_t next = next_;
  int64_t dropped = 0;
  int64_t steps = 0;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const bool is_step = i < count && entries_[i].is_step;
    if (!is_step || steps++ % 2 == 0) {
      kept.push_back(std::move(entries_[i]));
      continue;
    }
    ++dropped;
    if (i < next_) --next;
  }
  entries_ = std::move(kept);
  next_ = next;
  return dropped;
}

std::string SendQueue::Serialize() const {
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream out(&stream);
  for (const Entry& entry : entries_) {
    if (entry.seq == 0 && !entry.is_fault) continue;
    out.WriteVarint32(static_cast<uint32_t>(entry.bytes.size()));
    out.WriteString(entry.bytes);
  }
  out.Trim();
  return bytes;
}

}  // namespace mt::rank
