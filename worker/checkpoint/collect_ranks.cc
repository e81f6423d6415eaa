// Threads read and parse; what they keep of a rank is joined under a lock: of each tensor its boxes
// as plain numbers, of each rank the numbers of its tensors.
#include "worker/checkpoint/collect_ranks.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <memory>
#include <unordered_map>
#include <utility>

#include "common/base/files.h"
#include "common/base/mutex.h"
#include "worker/checkpoint/format/coverage.h"
#include "worker/checkpoint/format/parallel_tasks.h"
#include "worker/checkpoint/format/rank_manifest.h"

namespace mt::checkpoint {
namespace {

// That read beside training; each holds one rank's text.
constexpr int kCollectThreads = 4;

StatusOr<RankRecord> ParseRecord(const std::string& text) {
  RankRecord record;
  const size_t space = std::min(text.find(' '), text.size());
  const auto end = std::from_chars(text.data(), text.data() + space, record.bytes);
  const auto digest =
      base::ParseHash128(std::string_view(text).substr(std::min(space + 1, text.size())));
  if (end.ec != std::errc() || end.ptr != text.data() + space || !digest)
    return base::Internal("a rank has announced \"{}\"", text);
  record.digest = *digest;
  return record;
}

// Ascending numbers as runs.
std::vector<std::pair<int64_t, int64_t>> RunsOf(std::vector<int64_t> numbers) {
  std::ranges::sort(numbers);
  std::vector<std::pair<int64_t, int64_t>> runs;
  for (const int64_t number : numbers) {
    if (!runs.empty() && runs.back().second + 1 == number) {
      runs.back().second = number;
    } else {
      runs.emplace_back(number, number);
    }
  }
  return runs;
}

class Collection {
 public:
  Collection(const std::string& folder, Manifest* manifest)
      : folder_(folder), manifest_(manifest) {}

  Status Run(const std::vector<std::string>& records) {
    std::vector<RankRecord> parsed;
    for (const std::string& record : records) {
      ASSIGN_OR_RETURN(const RankRecord one, ParseRecord(record));
      parsed.push_back(one);
    }
    entries_.resize(parsed.size());
    seen_.resize(parsed.size());
    RETURN_IF_ERROR(InTasks(std::ssize(parsed), [&](size_t rank) {
      return parsed[rank].bytes == 0 ? OkStatus() : Take(static_cast<int>(rank), parsed[rank]);
    }));
    RETURN_IF_ERROR(
        InTasks(std::ssize(tensors_), [this](size_t i) { return CheckCovered(*tensors_[i]); }));
    Fill();
    return OkStatus();
  }

 private:
  // Of all ranks together.
  struct Tensor {
    const std::string* key = nullptr;  // in numbers_
    std::string dtype;
    std::vector<int64_t> shape;
    BoxList boxes;
  };

  // The first error, in the order of tasks.
  static Status InTasks(int64_t count, const std::function<Status(size_t)>& task) {
    std::vector<Status> done(static_cast<size_t>(count));
    RunTasks(count, kCollectThreads,
             [&](int64_t i) { done[static_cast<size_t>(i)] = task(static_cast<size_t>(i)); });
    for (const Status& status : done) RETURN_IF_ERROR(status);
    return OkStatus();
  }

  Status Take(int rank, const RankRecord& record) {
    RankEntry& entry = entries_[static_cast<size_t>(rank)];
    entry = {.manifest = RankManifestName(rank),
             .file = RankFileName(rank),
             .bytes = record.bytes,
             .digest = record.digest};
    StatusOr<TensorTable> tensors = TensorTable();
    {
      ASSIGN_OR_RETURN(const std::string text, ReadRankText(folder_, entry));
      tensors = ParseRankManifest(text, entry.file, manifest_->block_bytes);
    }
    if (!tensors.ok()) return base::Annotate(tensors.status(), entry.manifest);
    const base::MutexLock lock(&mu_);
    for (const auto& [key, tensor] : *tensors) {
      entry.num_slices += std::ssize(tensor.slices);
      ASSIGN_OR_RETURN(const size_t number, Join(key, tensor));
      seen_[static_cast<size_t>(rank)].push_back(number);
    }
    return OkStatus();
  }

  // Adds a rank's slices of a tensor, and returns the tensor's number.
  StatusOr<size_t> Join(const std::string& key, const TensorEntry& tensor) {
    const auto [found, first] = numbers_.emplace(key, tensors_.size());
    if (first) {
      tensors_.push_back(std::make_unique<Tensor>(
          Tensor{&found->first, tensor.dtype, tensor.shape, BoxList(tensor.shape.size())}));
    }
    Tensor& known = *tensors_[found->second];
    if (known.dtype != tensor.dtype || known.shape != tensor.shape)
      return base::Internal("ranks disagree on the shape or type of {}", key);
    for (const SliceEntry& slice : tensor.slices) known.boxes.Add(slice.offset, slice.shape);
    return found->second;
  }

  static Status CheckCovered(const Tensor& tensor) {
    const Status covered = CheckCoveredOnce(tensor.boxes, tensor.shape);
    return covered.ok() ? covered : base::Annotate(covered, "tensor " + *tensor.key);
  }

  void Fill() {
    for (const std::unique_ptr<Tensor>& tensor : tensors_) {
      manifest_->tensors[*tensor->key] = {
          .dtype = tensor->dtype, .shape = tensor->shape, .slices = {}};
    }
    std::vector<int64_t> ordinals(tensors_.size());  // by number
    int64_t next = 0;
    for (const auto& [key, tensor] : manifest_->tensors) ordinals[numbers_.at(key)] = next++;
    for (size_t rank = 0; rank < entries_.size(); ++rank) {
      if (seen_[rank].empty()) continue;
      std::vector<int64_t> of_rank;
      for (const size_t number : seen_[rank]) of_rank.push_back(ordinals[number]);
      entries_[rank].tensors = RunsOf(std::move(of_rank));
      manifest_->ranks.push_back(std::move(entries_[rank]));
    }
  }

  const std::string& folder_;
  Manifest* const manifest_;
  std::vector<RankEntry> entries_;         // by rank
  std::vector<std::vector<size_t>> seen_;  // of each rank: numbers of tensors
  base::Mutex mu_;                         // what ranks are joined in, while there are threads
  std::unordered_map<std::string, size_t> numbers_;  // of keys, as they come
  std::vector<std::unique_ptr<Tensor>> tensors_;     // by number
};

}  // namespace

std::string ToText(const RankRecord& record) {
  return fmt::format("{} {}", record.bytes, base::HexOf(record.digest));
}

Status CollectRanks(const std::string& folder, const std::vector<std::string>& records,
                    Manifest* manifest) {
  return Collection(folder, manifest).Run(records);
}

}  // namespace mt::checkpoint
