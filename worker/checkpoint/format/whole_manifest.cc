// Each thread keeps of a rank's manifest what is wanted; ranks are joined in their order.
#include "worker/checkpoint/format/whole_manifest.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "worker/checkpoint/format/directory.h"
#include "worker/checkpoint/format/parallel_tasks.h"
#include "worker/checkpoint/format/rank_manifest.h"

namespace mt::checkpoint {
namespace {

class SliceSearch {
 public:
  explicit SliceSearch(const ReadSlicesArgs& args) : args_(args) {
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
    std::vector<StatusOr<TensorTable>> found(ranks.size(), TensorTable());
    RunTasks(std::ssize(ranks), args_.threads, [&](int64_t i) {
      const auto at = static_cast<size_t>(i);
      found[at] = Read(*ranks[at]);
    });
    TensorTable all;
    // Those of version 1 have their slices here.
    for (const auto& [key, tensor] : args_.manifest->tensors) {
      if (IsWanted(key)) all.emplace_hint(all.end(), key, tensor);
    }
    for (StatusOr<TensorTable>& of_rank : found) {
      RETURN_IF_ERROR(of_rank.status());
      for (auto& [key, tensor] : *of_rank) {
        std::vector<SliceEntry>& slices = all.at(key).slices;
        std::ranges::move(tensor.slices, std::back_inserter(slices));
      }
      *of_rank = TensorTable();
    }
    return all;
  }

 private:
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
    ASSIGN_OR_RETURN(TensorTable tensors,
                     ReadRankManifest(args_.folder, *args_.manifest, rank, args_.open));
    std::erase_if(tensors, [this](const auto& entry) { return !IsWanted(entry.first); });
    return tensors;
  }

  const ReadSlicesArgs& args_;
  std::vector<int64_t> ordinals_;  // of the wanted tensors, ascending
};

}  // namespace

StatusOr<TensorTable> ReadSlices(const ReadSlicesArgs& args) { return SliceSearch(args).Run(); }

StatusOr<Manifest> ReadWholeManifest(const std::string& directory, const CheckpointId& id,
                                     int threads) {
  ASSIGN_OR_RETURN(Manifest manifest, ReadManifest(directory, id));
  const std::string folder = base::JoinPath(directory, FolderName(id));
  ASSIGN_OR_RETURN(manifest.tensors,
                   ReadSlices({.folder = folder, .manifest = &manifest, .threads = threads}));
  const Status covered = CheckCoverage(manifest);
  if (!covered.ok()) return base::Annotate(covered, folder);
  return manifest;
}

}  // namespace mt::checkpoint
