// Only the candidates down to the first intact one are read.
#include "worker/checkpoint/format/intact.h"

#include "worker/checkpoint/format/directory.h"
#include "worker/checkpoint/format/rank_manifest.h"
#include "worker/checkpoint/format/safetensors.h"

namespace mt::checkpoint {
namespace {

// Whether the candidate is another run's; an error where it is damaged or cannot be read.
StatusOr<bool> IsOfAnother(const IntactQuery& query, const CheckpointId& id) {
  ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(query.directory, id, query.open));
  if (!manifest.run.empty() && manifest.run != query.run) return true;
  const auto known = query.damaged.find(id);
  if (known != query.damaged.end()) return base::DataLoss("{}", known->second);
  RETURN_IF_ERROR(
      CheckFiles(base::JoinPath(query.directory, FolderName(id)), manifest, query.open));
  return false;
}

}  // namespace

Status CheckFiles(const std::string& folder, const Manifest& manifest,
                  const base::FileOpener& open) {
  for (const RankEntry& rank : manifest.ranks)
    RETURN_IF_ERROR(ReadRankText(folder, rank, open).status());
  for (const std::string& file : DataFilesOf(manifest)) {
    RETURN_IF_ERROR(SafetensorsReader::Open(base::JoinPath(folder, file), open).status());
  }
  return OkStatus();
}

bool IsDamage(const Status& status) { return absl::IsDataLoss(status) || absl::IsNotFound(status); }

StatusOr<IntactChoice> ChooseIntact(const IntactQuery& query) {
  IntactChoice choice;
  for (const CheckpointId& id : query.candidates) {
    StatusOr<bool> other = IsOfAnother(query, id);
    // What a file server shows late is there at the second look.
    if (!other.ok() && IsDamage(other.status())) other = IsOfAnother(query, id);
    if (other.ok() && *other) continue;
    if (other.ok()) {
      choice.load = id;
      return choice;
    }
    if (!IsDamage(other.status())) return base::Annotate(other.status(), FolderName(id));
    choice.damaged.push_back(fmt::format("{}: {}", FolderName(id), base::Message(other.status())));
  }
  return choice;
}

}  // namespace mt::checkpoint
