// Each thread keeps of a rank's manifest what is wanted; ranks are joined in their order as soon as
// those before them are, so that no slice is held twice.
#include "worker/checkpoint/format/whole_manifest.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "worker/checkpoint/format/directory.h"
#include "worker/checkpoint/format/parallel_tasks.h"
#include "worker/checkpoint/format/rank_manifest.h"

namespace mt::checkpoint {
namespace {

class SliceSearch {
 public:
  explicit SliceSearch(const ReadSlicesArgs& args)
      : args_(args), manifests_(args.folder, *args.manifest, args.open) {
    int64_t ordinal = 0;
    for (const auto& [key, tensor] : args_.manifest->tensors) {
      if (IsWanted(key)) ordinals_.push_back(ordinal);
      ++ordinal;
    }
  }

  StatusOr<TensorTable> Run() {
    std::vector<const RankEntry*> ranks;
    for (const RankEntry& rank : args_.manifest->ranks) {
      if (HasWanted(rank)) ranks.push_back(&rank);
    }
    // Those of version 1 have their slices here.
    for (const auto& [key, tensor] : args_.manifest->tensors) {
      if (IsWanted(key)) all_.emplace_hint(all_.end(), key, tensor);
    }
    found_.resize(ranks.size());
    RunTasks(std::ssize(ranks), args_.threads, [&](int64_t i) {
      StatusOr<TensorTable> tensors = Read(*ranks[static_cast<size_t>(i)]);
      const base::MutexLock lock(&mu_);
      found_[static_cast<size_t>(i)] = {.is_read = true, .tensors = std::move(tensors)};
      JoinNext();
    });
    RETURN_IF_ERROR(failed_);
    return std::move(all_);
  }

 private:
  // What a rank has.
  struct Found {
    bool is_read = false;
    StatusOr<TensorTable> tensors = TensorTable();
  };

  bool IsWanted(const std::string& key) const {
    return args_.keys == nullptr || args_.keys->contains(key);
  }

  bool HasWanted(const RankEntry& rank) const {
    return std::ranges::any_of(rank.tensors, [&](const auto& range) {
      const auto first = std::ranges::lower_bound(ordinals_, range.first);
      return first != ordinals_.end() && *first <= range.second;
    });
  }

  StatusOr<TensorTable> Read(const RankEntry& rank) const {
    ASSIGN_OR_RETURN(TensorTable tensors, manifests_.Read(rank));
    std::erase_if(tensors, [this](const auto& entry) { return !IsWanted(entry.first); });
    return tensors;
  }

  // Adds what the next ranks have, as far as they are read.
  void JoinNext() {
    for (; joined_ < found_.size() && found_[joined_].is_read; ++joined_) {
      StatusOr<TensorTable> of_rank = std::exchange(found_[joined_].tensors, TensorTable());
      if (!of_rank.ok() && failed_.ok()) failed_ = of_rank.status();
      if (!failed_.ok()) continue;
      for (auto& [key, tensor] : *of_rank) {
        std::vector<SliceEntry>& slices = all_.at(key).slices;
        std::ranges::move(tensor.slices, std::back_inserter(slices));
      }
    }
  }

  const ReadSlicesArgs& args_;
  const RankManifests manifests_;
  base::Mutex mu_;            // what ranks are joined in, while there are threads
  std::vector<Found> found_;  // by rank; empty again once they are joined
  size_t joined_ = 0;
  Status failed_;
  TensorTable all_;
  std::vector<int64_t> ordinals_;  // of the wanted tensors, ascending
};

// That tensors are covered, side by side; each slice was checked with its rank's manifest, or with
// the one of version 1.
Status CheckAll(const std::string& folder, const Manifest& manifest, int threads) {
  std::vector<TensorTable::const_iterator> tensors;
  for (auto it = manifest.tensors.begin(); it != manifest.tensors.end(); ++it)
    tensors.push_back(it);
  std::vector<Status> checked(tensors.size());
  RunTasks(std::ssize(tensors), threads, [&](int64_t i) {
    const auto at = static_cast<size_t>(i);
    checked[at] = CheckWhole(tensors[at]->first, tensors[at]->second);
  });
  for (const Status& status : checked) {
    if (!status.ok()) return base::Annotate(status, folder);
  }
  return OkStatus();
}

}  // namespace

StatusOr<TensorTable> ReadSlices(const ReadSlicesArgs& args) { return SliceSearch(args).Run(); }

StatusOr<Manifest> ReadWholeManifest(const std::string& directory, const CheckpointId& id,
                                     int threads) {
  ASSIGN_OR_RETURN(Manifest manifest, ReadManifest(directory, id));
  const std::string folder = base::JoinPath(directory, FolderName(id));
  ASSIGN_OR_RETURN(manifest.tensors,
                   ReadSlices({.folder = folder, .manifest = &manifest, .threads = threads}));
  RETURN_IF_ERROR(CheckAll(folder, manifest, threads));
  return manifest;
}

}  // namespace mt::checkpoint
