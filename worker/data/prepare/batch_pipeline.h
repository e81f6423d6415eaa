// The threads of a conversion: one reads and cuts, several encode, and the caller's own takes the
// batches in the order of the input. A fixed number of batches goes round, so memory does not grow
// with the input, and reading waits where encoding or writing is slower.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/base/mutex.h"
#include "common/base/status.h"
#include "worker/data/prepare/batch_encoder.h"
#include "worker/data/prepare/text_batch.h"
#include "worker/data/prepare/text_cutter.h"

namespace mt::data {

class BatchPipeline {
 public:
  struct Args {
    CutOptions cut{};
    InputPosition from{};
    EncodeOptions encode{};
    int threads = 1;  // that encode
  };
  explicit BatchPipeline(const Args& args) : args_(args) {}

  // Runs until the inputs end or something fails, and calls `take` for each batch on the calling
  // thread. The first error in the order of the input is returned, or that of `take`. Call once.
  Status Run(const std::function<Status(TextBatch&)>& take);

 private:
  using BatchPtr = std::unique_ptr<TextBatch>;

  void Read();
  void Encode();
  Status Write(const std::function<Status(TextBatch&)>& take);
  // An empty batch, or nullptr where it is time to stop.
  BatchPtr TakeFree();
  void GiveBack(BatchPtr batch);
  int NumBatches() const { return 2 * args_.threads + 3; }
  // Hands a batch on. One that is much larger than usual goes through alone, and those that are
  // somewhat larger have together the text of as many as usual.
  void Submit(BatchPtr batch);
  void WaitUntilEmpty() EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Args args_;
  base::Mutex mu_;
  base::CondVar changed_;
  std::vector<BatchPtr> free_ GUARDED_BY(mu_);
  std::deque<BatchPtr> read_ GUARDED_BY(mu_);
  std::map<int64_t, BatchPtr> encoded_ GUARDED_BY(mu_);
  int64_t in_flight_ GUARDED_BY(mu_) = 0;       // submitted, not given back
  size_t in_flight_bytes_ GUARDED_BY(mu_) = 0;  // of their text
  bool all_read_ GUARDED_BY(mu_) = false;
  bool stop_ GUARDED_BY(mu_) = false;
};

}  // namespace mt::data
