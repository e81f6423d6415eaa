// A ring of `prefetch` slots between the background threads and Next. A thread claims the next
// microbatch number once its slot is free and reads it without holding the lock, so several can be
// read at the same time and are returned in order.
#include "worker/data/loader.h"

#include <algorithm>
#include <limits>
#include <pthread.h>
#include <utility>

#include "common/base/check.h"
#include "common/base/math.h"

namespace mt::data {
namespace {

// Copies these parts of a sample into column i of the [s, b] arrays.
void PlaceSample(std::span<const int32_t> tokens, std::span<const float> weights,
                 MicrobatchParts parts, size_t i, Microbatch* batch) {
  const size_t b = static_cast<size_t>(batch->b);
  for (size_t t = 0; parts.inputs && t < weights.size(); ++t) batch->tokens[t * b + i] = tokens[t];
  for (size_t t = 0; parts.labels && t < weights.size(); ++t) {
    batch->labels[t * b + i] = tokens[t + 1];
    batch->weights[t * b + i] = weights[t];
    batch->weight_sum += static_cast<double>(weights[t]);
  }
}

double BytesOfLabels(const Microbatch& batch, const std::vector<int32_t>* token_bytes) {
  if (token_bytes == nullptr || token_bytes->empty())
    return std::numeric_limits<double>::quiet_NaN();
  double bytes = 0;
  for (size_t i = 0; i < batch.labels.size(); ++i) {
    const auto id = static_cast<size_t>(batch.labels[i]);
    if (id < token_bytes->size())
      bytes += static_cast<double>(batch.weights[i]) * (*token_bytes)[id];
  }
  return bytes;
}

int64_t CountMicrobatches(const Loader::Args& args) {
  const int64_t samples = args.end_sample - args.first_sample;
  const int64_t round = args.micro_batch_size * args.dp_size;
  return args.pad_last ? base::CeilDiv(samples, round) : samples / round;
}

}  // namespace

StatusOr<std::unique_ptr<Loader>> Loader::Create(Args args) {
  CHECK(args.dataset != nullptr);
  CHECK(args.micro_batch_size > 0 && args.prefetch > 0 && args.threads > 0);
  CHECK(args.dp_rank >= 0 && args.dp_rank < args.dp_size);
  const int64_t available = args.dataset->num_samples();
  if (args.end_sample < 0) args.end_sample = available;
  if (args.first_sample < 0 || args.first_sample > args.end_sample || args.end_sample > available) {
    return base::InvalidArgument(
        "{} data of {}: samples {} to {} were asked for, it has {}; train on more data or shorten "
        "the run",
        args.dataset->record().split_name, args.dataset->record().source, args.first_sample,
        args.end_sample, available);
  }
  std::unique_ptr<Loader> loader(new Loader(std::move(args)));
  const int threads = loader->args_.parts.any() ? loader->args_.threads : 0;
  for (int i = 0; i < threads; ++i) {
    loader->threads_.emplace_back([self = loader.get(), i] { self->Run(i); });
  }
  return loader;
}

Loader::Loader(Args args)
    : args_(std::move(args)),
      empty_(EmptyMicrobatch(args_.dataset->seq_length(), args_.micro_batch_size, args_.parts)),
      num_microbatches_(CountMicrobatches(args_)),
      slots_(static_cast<size_t>(args_.prefetch)) {}

Loader::~Loader() {
  {
    const base::MutexLock lock(&mu_);
    stop_ = true;
    work_.NotifyAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

Loader::Slot& Loader::slot(int64_t m) {
  return slots_[static_cast<size_t>(m % static_cast<int64_t>(slots_.size()))];
}

void Loader::Run(int thread_idx) {
  ::pthread_setname_np(::pthread_self(), fmt::format("mt-data-{}", thread_idx).c_str());
  for (;;) {
    int64_t m = 0;
    {
      const base::MutexLock lock(&mu_);
      while (!stop_ && next_to_load_ < num_microbatches_ &&
             next_to_load_ >= next_to_return_ + args_.prefetch) {
        work_.Wait(&mu_);
      }
      if (stop_ || next_to_load_ >= num_microbatches_) return;
      m = next_to_load_++;
    }
    StatusOr<Microbatch> batch = Load(m);
    const base::MutexLock lock(&mu_);
    Slot& target = slot(m);
    target.status = batch.status();
    if (batch.ok()) target.batch = std::move(batch).value();
    target.ready = true;
    done_.NotifyAll();
  }
}

StatusOr<Microbatch> Loader::Load(int64_t m) const {
  Microbatch batch = empty_;
  const int64_t b = batch.b;
  std::vector<int32_t> tokens(static_cast<size_t>(batch.s + 1));
  std::vector<float> weights(static_cast<size_t>(batch.s));
  const int64_t first = args_.first_sample + (m * args_.dp_size + args_.dp_rank) * b;
  for (int64_t i = 0; i < b && first + i < args_.end_sample; ++i) {
    batch.samples[static_cast<size_t>(i)] = first + i;
    if (!args_.parts.any()) continue;
    RETURN_IF_ERROR(args_.dataset->Read(first + i, tokens, weights));
    PlaceSample(tokens, weights, args_.parts, static_cast<size_t>(i), &batch);
    if (args_.parts.positions) {
      PlacePositions(std::span(tokens).first(weights.size()),
                     args_.dataset->PositionsRestartBehind(first + i), i, &batch);
    }
  }
  if (args_.parts.inputs) SortTokens(&batch);
  if (args_.parts.position_order) SortPositions(&batch);
  if (args_.parts.labels) batch.label_bytes = BytesOfLabels(batch, args_.token_bytes.get());
  return batch;
}

StatusOr<Microbatch> Loader::Next() {
  const auto deadline = std::chrono::steady_clock::now() + args_.timeout;
  const base::MutexLock lock(&mu_);
  if (!failed_.ok()) return failed_;
  if (next_to_return_ == num_microbatches_) {
    return base::Error(absl::StatusCode::kOutOfRange,
                       "{} data of {}: all {} microbatches up to sample {} were read",
                       args_.dataset->record().split_name, args_.dataset->record().source,
                       num_microbatches_, args_.end_sample);
  }
  if (!args_.parts.any()) return Load(next_to_return_++);
  Slot& next = slot(next_to_return_);
  while (!next.ready) {
    if (!done_.WaitUntil(&mu_, deadline) && !next.ready) {
      return base::Error(absl::StatusCode::kDeadlineExceeded,
                         "{} data of {}: microbatch {} was not read within {} s; its storage may "
                         "hang",
                         args_.dataset->record().split_name, args_.dataset->record().source,
                         next_to_return_, std::chrono::duration<double>(args_.timeout).count());
    }
  }
  if (!next.status.ok()) {
    failed_ = next.status;
    return failed_;
  }
  next.ready = false;
  ++next_to_return_;
  work_.NotifyAll();
  return std::move(next.batch);
}

int64_t Loader::consumed_samples() const {
  const base::MutexLock lock(&mu_);
  const int64_t round = args_.micro_batch_size * args_.dp_size;
  return std::min(args_.end_sample, args_.first_sample + next_to_return_ * round);
}

}  // namespace mt::data
