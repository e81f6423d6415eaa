// Messages on their way to the agent, in order. Steps, job reports and finished commands get a
// rising number and are kept until the coordinator has them on disk, since the agent, its stream
// and the coordinator may go and come back; all others need only be written once. Bounded: beyond
// the limit every second step of the older half is dropped. Messages wait as bytes, a quarter of
// their size as objects. Not thread-safe: the channel's lock guards it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

namespace megatrain::v1 {
class RankMessage;
}

namespace mt::rank {

class SendQueue {
 public:
  static constexpr size_t kLimit = 65536;

  explicit SendQueue(size_t limit = kLimit) : limit_(limit) {}

  // Takes the message in and numbers it (RankMessage.seq, JobReport.rank_seq) if it is to be kept.
  // Returns the number of steps that had to go for it.
  int64_t Push(megatrain::v1::RankMessage message);
  // The oldest message not yet written on this stream; false: none.
  bool Next(megatrain::v1::RankMessage* out);
  // The message that Next gave last was written.
  void Written();
  // A new stream: what is kept goes out again.
  void Rewind();
  // Everything up to this number has arrived for good.
  void Acked(int64_t seq);

  bool nothing_to_write() const { return next_ == entries_.size(); }
  // Nothing to write and nothing to be acknowledged.
  bool empty() const { return entries_.empty(); }
  size_t size() const { return entries_.size(); }

  // What nobody has acknowledged, and a fault that was not written, in order: RankMessages, each
  // after its length as a varint.
  std::string Serialize() const;

 private:
  struct Entry {
    std::string bytes;
    uint64_t id = 0;
    int64_t seq = 0;  // 0: gone once written
    bool is_step = false;
    bool is_fault = false;
  };
  // Drops every second step among the first `count` entries; returns how many.
  int64_t Thin(size_t count);

  const size_t limit_;
  std::deque<Entry> entries_;
  size_t next_ = 0;  // index of the first entry not yet written on this stream
  uint64_t last_id_ = 0;
  uint64_t in_flight_id_ = 0;  // 0: none
  int64_t last_seq_ = 0;
  int64_t handed_seq_ = 0;  // the highest one that Next ever gave: beyond it nothing has arrived
};

}  // namespace mt::rank
