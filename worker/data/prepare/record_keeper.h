// A thread that brings a growing data set to the disk while it grows, and every so often records
// what is there for sure. Offer does not block; Stop and the destructor wait for the last record.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>

#include "common/base/mutex.h"
#include "common/base/status.h"
#include "worker/data/prepare/prepare_record.h"

namespace mt::data {

class RecordKeeper {
 public:
  struct Args {
    std::string path{};  // of the record; "" to keep none
    int bin_fd = -1;     // both stay open as long as the keeper
    int lengths_fd = -1;
    int64_t begin_bytes = 0;  // of the .bin, recorded already
    int64_t every_bytes = 0;  // of the .bin; a record is also due after ten seconds
  };
  explicit RecordKeeper(const Args& args);
  ~RecordKeeper();
  RecordKeeper(const RecordKeeper&) = delete;
  RecordKeeper& operator=(const RecordKeeper&) = delete;

  // The kernel has all that `record` covers. Returns what has failed so far.
  Status Offer(const PrepareRecord& record);
  // Records what was offered last. Returns what failed: a later sync of the same files would not
  // report it again.
  Status Stop();

 private:
  using Clock = std::chrono::steady_clock;

  void Run();
  // True where it was recorded, false where that is not due yet.
  StatusOr<bool> Keep(const PrepareRecord& record, bool last);

  const Args args_;
  int64_t begun_bytes_;     // of the .bin, handed to the disk; the thread's own
  int64_t recorded_bytes_;  // likewise
  Clock::time_point recorded_at_ = Clock::now();
  base::Mutex mu_;
  base::CondVar changed_;
  std::optional<PrepareRecord> offered_ GUARDED_BY(mu_);
  Status status_ GUARDED_BY(mu_);
  bool stop_ GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace mt::data
