// AllocationStore on disk: a folder per job and epoch with the record (FORMAT.md) and the folders
// of its ranks. Loop thread only; blocking.
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
// The folders of all ranks below `allocations`, by job, epoch and rank.
std::vector<RankPlace> ListRankFolders(const std::string& allocations);

class AllocationDir final : public AllocationStore {
 public:
  // What an earlier agent has left of one job and epoch.
  struct Found {
    Found();
    Found(Found&&) noexcept;
    Found& operator=(Found&&) noexcept;
    ~Found();
    std::unique_ptr<megatrain::v1::AllocationRecord> record;
    // Why the record could not be read; it then has what names of folders tell. Empty: it could.
    std::string damage;
  };

  // `path` exists.
  explicit AllocationDir(std::string path) : path_(std::move(path)) {}

  Status Save(const megatrain::v1::AllocationRecord& record) override;
  void Remove(const std::string& job_uid, int64_t epoch) override;

  // By job and epoch. Folders of other names are left alone, with a warning.
  std::vector<Found> LoadAll() const;

 private:
  std::string path_;
};

}  // namespace mt::node
