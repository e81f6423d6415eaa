// AllocationStore on disk: a folder per job and epoch, which holds the record (FORMAT.md) and the
// folders of its ranks. Loop thread only; blocks on the local disk.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "worker/node/ranks/allocation_store.h"

namespace mt::node {

struct RankPlace {
  std::string job_uid;
  int64_t epoch = 0;
  int rank = 0;
  std::string folder;
};
// Lists the folders of all ranks below `allocations`, by job, epoch and rank.
std::vector<RankPlace> ListRankFolders(const std::string& allocations);

class AllocationDir final : public AllocationStore {
 public:
  // What an earlier agent has left of a job and epoch.
  struct Found {
    Found();
    Found(Found&&) noexcept;
    Found& operator=(Found&&) noexcept;
    ~Found();
    std::unique_ptr<megatrain::v1::AllocationRecord> record;
    // Why the record could not be read; empty if it could. A damaged record holds only what folder
    // names tell.
    std::string damage;
  };

  // `path` must exist.
  explicit AllocationDir(std::string path) : path_(std::move(path)) {}

  Status Save(const megatrain::v1::AllocationRecord& record) override;
  void Remove(const std::string& job_uid, int64_t epoch) override;

  // Everything below the path, by job and epoch. Folders with other names are skipped with a
  // warning.
  std::vector<Found> LoadAll() const;

 private:
  std::string path_;
};

}  // namespace mt::node
