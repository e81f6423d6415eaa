// A record is written beside, synced and renamed (base::WriteFileAtomic), so a reader finds the old
// one or the new one.
#include "worker/node/ranks/allocation_dir.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string_view>
#include <sys/stat.h>
#include <tuple>

#include "common/base/files.h"
#include "common/base/log.h"
#include "common/control/epoch.h"
#include "megatrain/v1/agent_state.pb.h"
#include "worker/node/ranks/checked_file.h"
#include "worker/node/ranks/job_names.h"

namespace mt::node {

using megatrain::v1::AllocationRecord;

namespace {

constexpr char kFile[] = "/allocation.bin";
constexpr std::string_view kMagic = "MTALLOC1";

// The names in a folder, sorted; none if it cannot be read.
std::vector<std::string> Names(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  std::filesystem::directory_iterator at(folder, error);
  for (; !error && at != std::filesystem::directory_iterator(); at.increment(error)) {
    names.push_back(at->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

StatusOr<AllocationRecord> ReadRecord(const std::string& folder, const AllocationName& name) {
  ASSIGN_OR_RETURN(const std::string body, ReadCheckedFile(folder + kFile, kMagic));
  AllocationRecord record;
  if (!record.ParseFromArray(body.data(), static_cast<int>(body.size()))) {
    return base::DataLoss("{}{}: cannot be parsed", folder, kFile);
  }
  if (record.assign().job_uid() != name.job_uid || record.assign().epoch() != name.epoch) {
    return base::DataLoss("{}{}: is of job {} epoch {}", folder, kFile, record.assign().job_uid(),
                          control::EpochText(record.assign().epoch()));
  }
  return record;
}

// Rebuilds what folder names tell of a record that cannot be read: job, epoch and ranks.
AllocationRecord GuessRecord(const std::string& folder, const AllocationName& name) {
  AllocationRecord record;
  record.mutable_assign()->set_job_uid(name.job_uid);
  record.mutable_assign()->set_epoch(name.epoch);
  for (const std::string& entry : Names(folder)) {
    if (const auto rank = ParseRankName(entry)) record.add_ranks()->set_rank(*rank);
  }
  return record;
}

}  // namespace

AllocationDir::Found::Found() = default;
AllocationDir::Found::Found(Found&&) noexcept = default;
AllocationDir::Found& AllocationDir::Found::operator=(Found&&) noexcept = default;
AllocationDir::Found::~Found() = default;

std::vector<RankPlace> ListRankFolders(const std::string& allocations) {
  std::vector<RankPlace> places;
  for (const std::string& job : Names(allocations)) {
    const auto name = ParseAllocationName(job);
    if (!name) continue;
    const std::string parent = AllocationFolder(allocations, name->job_uid, name->epoch);
    for (const std::string& entry : Names(parent)) {
      const auto rank = ParseRankName(entry);
      if (rank)
        places.push_back({name->job_uid, name->epoch, *rank, base::JoinPath(parent, entry)});
    }
  }
  std::sort(places.begin(), places.end(), [](const RankPlace& a, const RankPlace& b) {
    return std::tie(a.job_uid, a.epoch, a.rank) < std::tie(b.job_uid, b.epoch, b.rank);
  });
  return places;
}

Status AllocationDir::Save(const AllocationRecord& record) {
  const std::string folder =
      AllocationFolder(path_, record.assign().job_uid(), record.assign().epoch());
  if (::mkdir(folder.c_str(), 0700) == 0) {
    RETURN_IF_ERROR(base::SyncDir(path_));  // a synced record in a folder that is lost is lost
  } else if (errno != EEXIST) {
    return base::ErrnoError(errno, "create folder " + folder);
  }
  return WriteCheckedFile(folder + kFile, kMagic, record.SerializeAsString());
}

void AllocationDir::Remove(const std::string& job_uid, int64_t epoch) {
  const std::string folder = AllocationFolder(path_, job_uid, epoch);
  std::error_code error;
  std::filesystem::remove_all(folder, error);
  if (error) {
    log::Warn("the folder of a job's ranks cannot be removed",
              {{"folder", folder}, {"why", error.message()}});
  }
}

std::vector<AllocationDir::Found> AllocationDir::LoadAll() const {
  std::vector<Found> all;
  for (const std::string& entry : Names(path_)) {
    const auto name = ParseAllocationName(entry);
    if (!name) {
      log::Warn("not a folder of this agent", {{"path", path_ + "/" + entry}});
      continue;
    }
    const std::string folder = path_ + "/" + entry;
    auto record = ReadRecord(folder, *name);
    Found found;
    if (!record.ok()) found.damage = base::Message(record.status());
    found.record = std::make_unique<AllocationRecord>(record.ok() ? std::move(record).value()
                                                                  : GuessRecord(folder, *name));
    all.push_back(std::move(found));
  }
  return all;
}

}  // namespace mt::node
