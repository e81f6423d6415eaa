// Times spans of work on several streams of a device against one time base, so that the host can
// tell how long each took and which of them overlapped. For benchmarks and traces: a span takes
// nothing from a GPU's multiprocessors, unlike marks (mark_ring.h), but its times are known only
// once it is over.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/base/check.h"
#include "common/base/mutex.h"

namespace mt::kernels {

class Stream;

// A span lies between two points in the order of one stream. The device notes when it passes them;
// the host enqueues them, waits for nothing and reads them once.
// Threading: Begin and End by any threads, each with a stream that it may use.
class SpanClock {
 public:
  struct Span {
    int label = 0;
    // Seconds since a moment that all spans of the clock share.
    double begin = 0;
    double end = 0;
  };
  using Ticket = int64_t;

  virtual ~SpanClock() = default;
  SpanClock(const SpanClock&) = delete;
  SpanClock& operator=(const SpanClock&) = delete;

  // Begins a span behind all work that `stream` was given so far. nullopt, and nothing is timed:
  // the clock is full, or the stream is being recorded (Device::Record), and a recording has no
  // times.
  std::optional<Ticket> Begin(Stream& stream, int label) LOCKS_EXCLUDED(mu_) {
    Ticket ticket = 0;
    {
      const base::MutexLock lock(&mu_);
      ticket = static_cast<Ticket>(entries_.size());
      if (ticket == capacity_) return std::nullopt;
      entries_.push_back({.label = label});
    }
    if (!Note(stream, BeginOf(ticket))) return std::nullopt;
    return ticket;
  }
  // Ends the span behind all work that `stream`, the one that it was begun on, was given so far.
  void End(Stream& stream, Ticket ticket) LOCKS_EXCLUDED(mu_) {
    if (!Note(stream, EndOf(ticket))) return;
    const base::MutexLock lock(&mu_);
    entries_[static_cast<size_t>(ticket)].ended = true;
  }
  // The spans that were ended, in the order in which they were begun. Blocks until the device has
  // passed their ends. No span may be begun or ended meanwhile.
  std::vector<Span> Read() LOCKS_EXCLUDED(mu_) {
    const base::MutexLock lock(&mu_);
    std::vector<Span> spans;
    spans.reserve(entries_.size());
    for (size_t i = 0; i < entries_.size(); ++i) {
      const auto ticket = static_cast<Ticket>(i);
      if (!entries_[i].ended) continue;
      spans.push_back({.label = entries_[i].label,
                       .begin = SecondsAt(BeginOf(ticket)),
                       .end = SecondsAt(EndOf(ticket))});
    }
    return spans;
  }

 protected:
  explicit SpanClock(int64_t capacity) : capacity_(capacity) { CHECK_GT(capacity, 0); }
  int64_t num_points() const { return 2 * capacity_; }

 private:
  struct Entry {
    int label = 0;
    bool ended = false;
  };

  static int64_t BeginOf(Ticket ticket) { return 2 * ticket; }
  static int64_t EndOf(Ticket ticket) { return 2 * ticket + 1; }

  // Notes that the device passes a point, each of num_points() at most once. False where the stream
  // is being recorded. Any thread.
  virtual bool Note(Stream& stream, int64_t point) = 0;
  // When it passed a point that was noted; waits for it.
  virtual double SecondsAt(int64_t point) = 0;

  const int64_t capacity_;
  base::Mutex mu_;
  std::vector<Entry> entries_ GUARDED_BY(mu_);  // by ticket
};

}  // namespace mt::kernels
