// Turns a data set into the stream of microbatches of one data parallel rank, prefetched by
// background threads. The position is a single number, the consumed samples, and samples are
// assigned as in Megatron's sequential sampler (dataloader_type "single"): slot i of microbatch m
// of rank r holds sample first_sample + (m dp + r) mbs + i. So the samples of a step are the same
// for every dp, tp and pp.
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
    int64_t first_sample = 0;  // consumed samples at the start of the run
    int64_t end_sample = -1;   // end of the range, exclusive; -1: dataset->num_samples()
    int64_t micro_batch_size = 0;
    int64_t dp_rank = 0;
    int64_t dp_size = 1;
    // What happens to an incomplete last round of mbs x dp samples. false (training): it is
    // dropped. true (evaluation): it is filled with padding samples (number -1, token 0, weight 0),
    // so that every sample counts exactly once and all ranks see the same number of microbatches.
    bool pad_last = false;
    // What is read; the rest stays as in EmptyMicrobatch. With none of the parts nothing is read
    // and no thread is started: Next gives the numbers of the samples.
    MicrobatchParts parts{};
    // Bytes of text by id (Tokenizer::token_bytes); nullptr or empty: the microbatches' label_bytes
    // are NaN. Ids behind its end stand for no text.
    std::shared_ptr<const std::vector<int32_t>> token_bytes{};
    int prefetch = 2;                                             // microbatches read ahead, >= 1
    int threads = 1;                                              // that read, >= 1
    std::chrono::milliseconds timeout = std::chrono::minutes(5);  // of one call of Next
  };

  // Starts the threads, if anything is to be read. kInvalidArgument if first_sample or end_sample
  // lies outside the data set.
  static StatusOr<std::unique_ptr<Loader>> Create(Args args);
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;
  // Stops and joins the threads; blocks until a read in progress is finished.
  ~Loader();

  // Returns the next microbatch; blocks until it has been read. An error of the data set is
  // returned at the microbatch it concerns and again by every later call. kOutOfRange after the
  // last microbatch, kDeadlineExceeded after args.timeout. One caller at a time.
  StatusOr<Microbatch> Next();

  // Total number of microbatches that Next returns on this rank.
  int64_t num_microbatches() const { return num_microbatches_; }
  // Consumed samples over all data parallel ranks, including the microbatches returned so far; at
  // most end_sample. Thread-safe.
  int64_t consumed_samples() const;

 private:
  // One place of the prefetch ring.
  struct Slot {
    bool ready = false;
    Status status;
    Microbatch batch;
  };

  explicit Loader(Args args);
  // Body of a background thread.
  void Run(int thread_idx) LOCKS_EXCLUDED(mu_);
  // Reads microbatch m; called without the lock.
  StatusOr<Microbatch> Load(int64_t m) const;
  // The ring's slot of microbatch m.
  Slot& slot(int64_t m) EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Args args_;
  const Microbatch empty_;  // what each microbatch is before it is read
  const int64_t num_microbatches_;
  std::vector<std::thread> threads_;

  mutable base::Mutex mu_;
  base::CondVar work_;                       // a slot is free, or stop_ is set
  base::CondVar done_;                       // a slot is ready
  std::vector<Slot> slots_ GUARDED_BY(mu_);  // microbatch m is in slot m % prefetch
  int64_t next_to_load_ GUARDED_BY(mu_) = 0;
  int64_t next_to_return_ GUARDED_BY(mu_) = 0;
  bool stop_ GUARDED_BY(mu_) = false;
  Status failed_ GUARDED_BY(mu_);
};

}  // namespace mt::data
