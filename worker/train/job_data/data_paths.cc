// Paths of a list file are taken as the job's own: relative to the data root.
#include "worker/train/job_data/data_paths.h"

#include <set>
#include <utility>

#include "common/base/files.h"
#include "common/base/log.h"
#include "common/spec/roots.h"
#include "megatrain/v1/job.pb.h"
#include "worker/data/indexed_dataset.h"
#include "worker/data/mapped_file.h"

namespace mt::train {
namespace {

StatusOr<std::string> BelowDataRoot(const std::string& data_root, const std::string& relative) {
  RETURN_IF_ERROR(spec::CheckRelative(relative));
  if (data_root.empty()) {
    return base::FailedPrecondition("the worker has no --data-root, below which {} would lie",
                                    relative);
  }
  return base::JoinPath(data_root, relative);
}

StatusOr<data::DataPath> ReadList(const std::string& data_root, const std::string& file) {
  ASSIGN_OR_RETURN(const std::string path, BelowDataRoot(data_root, file));
  ASSIGN_OR_RETURN(const std::string text, base::ReadFile(path, spec::BelowRoot(data_root)));
  auto list = data::ParseDataPath(text);
  if (!list.ok()) return base::Annotate(list.status(), path);
  for (data::DataMember& member : *list) {
    auto prefix = BelowDataRoot(data_root, member.prefix);
    if (!prefix.ok()) return base::Annotate(prefix.status(), path);
    member.prefix = *std::move(prefix);
  }
  return list;
}

// All data sets of a split as the job names them.
StatusOr<data::DataPath> NamedPath(const std::string& data_root, const megatrain::v1::JobSpec& job,
                                   spec::Split split) {
  data::DataPath path;
  for (const spec::DataSource& source : spec::DataSources(job, split)) {
    if (!source.file.empty()) return ReadList(data_root, source.file);
    ASSIGN_OR_RETURN(std::string prefix, BelowDataRoot(data_root, source.prefix));
    path.push_back({.prefix = std::move(prefix), .weight = source.weight});
  }
  return path;
}

// An .idx without entries beside an empty .bin. Opened only where the sizes are those of one; what
// is missing or damaged is for whoever reads it to tell.
StatusOr<bool> IsEmptyPair(const std::string& prefix, const base::FileOpener& open) {
  constexpr int64_t kIdxBytes = 42;
  for (const auto& [ending, bytes] : {std::pair(".idx", kIdxBytes), {".bin", int64_t{0}}}) {
    const std::string path = prefix + ending;
    const auto fd = data::OpenFile(path, open);
    if (!fd.ok()) return false;
    const auto facts = data::FactsOf(*fd, path);
    if (!facts.ok() || facts->bytes != bytes) return false;
  }
  ASSIGN_OR_RETURN(const auto data, data::IndexedDataset::Open(prefix, open));
  return data->num_documents() == 0;
}

// A split's data sets with documents, and the others.
struct Divided {
  data::DataPath kept{};
  data::DataPath left_out{};
};

StatusOr<Divided> DividedPath(const std::string& data_root, const megatrain::v1::JobSpec& job,
                              spec::Split split) {
  Divided out;
  ASSIGN_OR_RETURN(data::DataPath path, NamedPath(data_root, job, split));
  if (path.size() < 2) return Divided{.kept = std::move(path)};
  for (const data::DataMember& member : path) {
    ASSIGN_OR_RETURN(const bool empty, IsEmptyPair(member.prefix, spec::BelowRoot(data_root)));
    (empty ? out.left_out : out.kept).push_back(member);
  }
  // Refused where it is opened, by its name.
  if (out.kept.empty()) return Divided{.kept = std::move(path)};
  return out;
}

}  // namespace

StatusOr<data::DataPath> DataPathOf(const std::string& data_root, const megatrain::v1::JobSpec& job,
                                    spec::Split split) {
  ASSIGN_OR_RETURN(Divided divided, DividedPath(data_root, job, split));
  return std::move(divided.kept);
}

Status SayEmptyPairs(const std::string& data_root, const megatrain::v1::JobSpec& job) {
  std::set<std::string> said;
  for (const spec::Split split : {spec::Split::kTrain, spec::Split::kValid, spec::Split::kTest}) {
    ASSIGN_OR_RETURN(const Divided divided, DividedPath(data_root, job, split));
    for (const data::DataMember& member : divided.left_out) {
      if (!said.insert(member.prefix).second) continue;
      log::Warn("a data set without documents is left out of the blend",
                {{"prefix", member.prefix}, {"weight", member.weight.value_or(0)}});
    }
  }
  return OkStatus();
}

data::SplitBy SplitByOf(const megatrain::v1::JobSpec& job) {
  const bool tokens = job.data().split_by() == megatrain::v1::Data::SPLIT_BY_TOKENS;
  return tokens ? data::SplitBy::kTokens : data::SplitBy::kDocuments;
}

}  // namespace mt::train
