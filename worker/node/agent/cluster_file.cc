// One message in a checked file.
#include "worker/node/agent/cluster_file.h"

#include <algorithm>

#include "common/base/files.h"
#include "megatrain/v1/agent_state.pb.h"
#include "worker/node/ranks/checked_file.h"

namespace mt::node {
namespace {

constexpr std::string_view kClusterMagic = "MTCLUST1";
constexpr size_t kIdBytes = 36;  // of a UUID as text

std::string HowToMend(const std::string& path) {
  return fmt::format(
      "{}: whom to obey is not known, so nobody is obeyed and the ranks go on alone; "
      "`mt-worker join CLUSTER --state DIR` writes it anew (`mtctl version` shows the cluster)",
      path);
}

}  // namespace

ClusterFile::ClusterFile(const std::string& state_dir)
    : path_(base::JoinPath(state_dir, "cluster.bin")) {}

StatusOr<ClusterState> ClusterFile::Load() const {
  const auto body = ReadCheckedFile(path_, kClusterMagic);
  if (body.status().code() == absl::StatusCode::kNotFound) return ClusterState{};
  if (!body.ok()) {
    return Status(body.status().code(),
                  fmt::format("{}. {}", base::Message(body.status()), HowToMend(path_)));
  }
  megatrain::v1::AgentCluster record;
  if (!record.ParseFromString(*body) || record.cluster_id().empty()) {
    return base::DataLoss("{} cannot be parsed. {}", path_, HowToMend(path_));
  }
  return ClusterState{.cluster_id = record.cluster_id(),
                      .term = record.term(),
                      .coordinator_uid = record.coordinator_uid()};
}

Status ClusterFile::Save(const ClusterState& state) {
  megatrain::v1::AgentCluster record;
  record.set_cluster_id(state.cluster_id);
  record.set_term(state.term);
  record.set_coordinator_uid(state.coordinator_uid);
  return WriteCheckedFile(path_, kClusterMagic, record.SerializeAsString());
}

Status JoinCluster(const std::string& state_dir, const std::string& cluster_id) {
  const bool is_id = cluster_id.size() == kIdBytes && std::ranges::all_of(cluster_id, [](char c) {
                       return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || c == '-';
                     });
  if (!is_id) {
    return base::InvalidArgument(
        "'{}' is not the id of a cluster; `mtctl version` shows it (a1b2c3d4-...)", cluster_id);
  }
  return ClusterFile(state_dir).Save({.cluster_id = cluster_id, .term = 0, .coordinator_uid = ""});
}

}  // namespace mt::node
