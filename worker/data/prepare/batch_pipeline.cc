// One lock for all: batches are a mebibyte, so it is taken some thousand times a second.
#include "worker/data/prepare/batch_pipeline.h"

#include <pthread.h>
#include <utility>

namespace mt::data {
namespace {

// What is kept of a batch's buffers: those of a usual one, and of four bytes a token.
constexpr size_t kUsualTexts = 2;
constexpr size_t kUsualTokens = 5;

// Gives back the memory of a batch that was larger than usual.
void Shrink(std::string* buffer, size_t usual) {
  buffer->clear();
  if (buffer->capacity() > usual) buffer->shrink_to_fit();
}

}  // namespace

Status BatchPipeline::Run(const std::function<Status(TextBatch&)>& take) {
  {
    const base::MutexLock lock(&mu_);
    for (int i = 0; i < NumBatches(); ++i) free_.push_back(std::make_unique<TextBatch>());
  }
  std::vector<std::thread> threads;
  threads.emplace_back([this] {
    ::pthread_setname_np(::pthread_self(), "mt-read");
    Read();
  });
  for (int i = 0; i < args_.threads; ++i) {
    threads.emplace_back([this, i] {
      ::pthread_setname_np(::pthread_self(), fmt::format("mt-encode-{}", i).c_str());
      Encode();
    });
  }
  Status status = Write(take);
  {
    const base::MutexLock lock(&mu_);
    stop_ = true;
    changed_.NotifyAll();
  }
  for (std::thread& thread : threads) thread.join();
  return status;
}

BatchPipeline::BatchPtr BatchPipeline::TakeFree() {
  const base::MutexLock lock(&mu_);
  while (!stop_ && free_.empty()) changed_.Wait(&mu_);
  if (stop_) return nullptr;
  BatchPtr batch = std::move(free_.back());
  free_.pop_back();
  return batch;
}

void BatchPipeline::WaitUntilEmpty() {
  while (!stop_ && in_flight_ > 0) changed_.Wait(&mu_);
}

void BatchPipeline::Submit(BatchPtr batch) {
  const base::MutexLock lock(&mu_);
  const size_t bytes = batch->text.size();
  const bool large = bytes > 4 * args_.cut.batch_bytes;
  const size_t most = static_cast<size_t>(NumBatches()) * args_.cut.batch_bytes;
  if (large) WaitUntilEmpty();
  while (!stop_ && in_flight_ > 0 && in_flight_bytes_ + bytes > most) changed_.Wait(&mu_);
  ++in_flight_;
  in_flight_bytes_ += bytes;
  read_.push_back(std::move(batch));
  changed_.NotifyAll();
  if (large) WaitUntilEmpty();
}

void BatchPipeline::Read() {
  TextCutter cutter(args_.cut, args_.from);
  for (int64_t number = 0;; ++number) {
    BatchPtr batch = TakeFree();
    if (batch == nullptr) return;
    const StatusOr<bool> more = cutter.Next(batch.get());
    batch->number = number;
    if (!more.ok()) {
      batch->pieces.clear();
      batch->status = more.status();
      batch->can_resume = false;
    }
    const bool last = !more.ok() || !*more;
    if (!more.ok() || *more) Submit(std::move(batch));
    if (!last) continue;
    const base::MutexLock lock(&mu_);
    all_read_ = true;
    changed_.NotifyAll();
    return;
  }
}

void BatchPipeline::Encode() {
  BatchEncoder encoder(args_.encode);
  for (;;) {
    BatchPtr batch;
    {
      const base::MutexLock lock(&mu_);
      while (!stop_ && read_.empty() && !all_read_) changed_.Wait(&mu_);
      if (stop_ || read_.empty()) return;
      batch = std::move(read_.front());
      read_.pop_front();
    }
    encoder.Encode(args_.cut.inputs, batch.get());
    const base::MutexLock lock(&mu_);
    encoded_[batch->number] = std::move(batch);
    changed_.NotifyAll();
  }
}

void BatchPipeline::GiveBack(BatchPtr batch) {
  const size_t bytes = batch->text.size();
  Shrink(&batch->text, kUsualTexts * args_.cut.batch_bytes);
  Shrink(&batch->tokens, kUsualTokens * args_.cut.batch_bytes);
  const base::MutexLock lock(&mu_);
  in_flight_bytes_ -= bytes;
  free_.push_back(std::move(batch));
  --in_flight_;
  changed_.NotifyAll();
}

Status BatchPipeline::Write(const std::function<Status(TextBatch&)>& take) {
  for (int64_t number = 0;; ++number) {
    BatchPtr batch;
    {
      const base::MutexLock lock(&mu_);
      const auto ended = [this]()
                             EXCLUSIVE_LOCKS_REQUIRED(mu_) { return all_read_ && in_flight_ == 0; };
      while (!encoded_.contains(number) && !ended()) changed_.Wait(&mu_);
      const auto found = encoded_.find(number);
      if (found == encoded_.end()) return OkStatus();
      batch = std::move(found->second);
      encoded_.erase(found);
    }
    RETURN_IF_ERROR(take(*batch));
    RETURN_IF_ERROR(batch->status);
    GiveBack(std::move(batch));
  }
}

}  // namespace mt::data
