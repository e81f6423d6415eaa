// Turns a data set into one data-parallel rank's stream of microbatches, read ahead by background
// threads. The position is one number, consumed samples, and Megatron's "single" rule places each
// sample: microbatch m of rank r holds, in slot i, sample first + m mbs dp + r mbs + i. So the
// samples of a step are the same for every dp, tp, pp.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "common/base/mutex.h"
#include "common/base/status.h"
#include "worker/data/dataset.h"
#include "worker/data/microbatch.h"

namespace mt::data {

class Loader {
 public:
  struct Args {
    std::shared_ptr<const Dataset> dataset{};
    int64_t first_sample = 0;  // consumed samples at the start
    int64_t end_sample = -1;   // first sample not to be read; -1: dataset->num_samples()
    int64_t micro_batch_size = 0;
    int64_t dp_rank = 0;
    int64_t dp_size = 1;
    // Training (false): the incomplete last round is dropped. Evaluation (true): it is filled up
    // with padding samples (number -1, token 0, weight 0), so that every sample counts exactly once
    // and all ranks see as many microbatches.
    bool pad_last = false;
    int prefetch = 2;                                             // microbatches ahead, at least 1
    int threads = 1;                                              // at least 1
    std::chrono::milliseconds timeout = std::chrono::minutes(5);  // of one Next
  };

  // kInvalidArgument where first_sample or end_sample lies outside the data set.
  static StatusOr<std::unique_ptr<Loader>> Create(Args args);
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;
  // Stops and joins the threads; a read in progress is finished first.
  ~Loader();

  // The next microbatch; blocks until it is read. Errors of the data set come here, at the
  // microbatch they concern, and again at every later call. kOutOfRange after the last one,
  // kDeadlineExceeded after args.timeout. One caller at a time.
  StatusOr<Microbatch> Next();

  // Microbatches that Next gives per rank in all.
  int64_t num_microbatches() const { return num_microbatches_; }
  // Consumed samples over all data-parallel ranks, microbatches returned so far included; at most
  // end_sample.
  int64_t consumed_samples() const;

 private:
  struct Slot {
    bool ready = false;
    Status status;
    Microbatch batch;
  };

  explicit Loader(Args args);
  void Run(int thread_idx) LOCKS_EXCLUDED(mu_);
  StatusOr<Microbatch> Load(int64_t m) const;
  Slot& slot(int64_t m) EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Args args_;
  const int64_t num_microbatches_;
  std::vector<std::thread> threads_;

  mutable base::Mutex mu_;
  base::CondVar work_;                       // a slot became free, or stop
  base::CondVar done_;                       // a slot became ready
  std::vector<Slot> slots_ GUARDED_BY(mu_);  // microbatch m is in slot m % prefetch
  int64_t next_to_load_ GUARDED_BY(mu_) = 0;
  int64_t next_to_return_ GUARDED_BY(mu_) = 0;
  bool stop_ GUARDED_BY(mu_) = false;
  Status failed_ GUARDED_BY(mu_);
};

}  // namespace mt::data
