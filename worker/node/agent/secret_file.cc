// Magic, checksum and a message, as in an allocation's record.
#include "worker/node/agent/secret_file.h"

#include <string_view>

#include "common/base/files.h"
#include "common/base/ids.h"
#include "common/base/log.h"
#include "megatrain/v1/agent_state.pb.h"

namespace mt::node {
namespace {

constexpr std::string_view kSecretMagic = "MTNODE01";
constexpr size_t kSecretHeaderBytes = 16;  // magic, then the checksum of the rest

std::string Checksum(std::string_view body) {
  uint64_t sum = base::Hash64(body);
  std::string bytes;
  for (int i = 0; i < 8; ++i, sum >>= 8) bytes.push_back(static_cast<char>(sum & 0xff));
  return bytes;
}

StatusOr<megatrain::v1::NodeSecret> Parse(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string bytes, base::ReadFile(path));
  const std::string_view view = bytes;
  megatrain::v1::NodeSecret kept;
  if (view.size() < kSecretHeaderBytes || view.substr(0, kSecretMagic.size()) != kSecretMagic ||
      view.substr(kSecretMagic.size(), 8) != Checksum(view.substr(kSecretHeaderBytes)) ||
      !kept.ParseFromString(bytes.substr(kSecretHeaderBytes))) {
    return base::DataLoss("{}: damaged (no header, or the checksum is wrong)", path);
  }
  return kept;
}

}  // namespace

StatusOr<SecretFile> SecretFile::Open(const std::string& folder, const std::string& node) {
  RETURN_IF_ERROR(base::MakeDirs(folder));
  SecretFile file(folder + "/secret.bin", node);
  if (base::Exists(file.path_)) file.Read();
  return file;
}

void SecretFile::Read() {
  const auto kept = Parse(path_);
  if (!kept.ok()) {
    log::Error("this node's secret cannot be read: registering without it (mtctl node readmit)",
               {{"node", node_}, {"why", base::Message(kept.status())}});
  } else if (kept->node() != node_) {
    log::Warn("the secret in the state folder is of another node: registering without it",
              {{"node", node_}, {"of", kept->node()}, {"file", path_}});
  } else {
    secret_ = kept->secret();
    generation_ = kept->generation();
  }
}

Status SecretFile::Keep(const std::string& secret, int64_t generation) {
  megatrain::v1::NodeSecret kept;
  kept.set_node(node_);
  kept.set_secret(secret);
  kept.set_generation(generation);
  const std::string body = kept.SerializeAsString();
  const std::string content = std::string(kSecretMagic) + Checksum(body) + body;
  RETURN_IF_ERROR(base::WriteFileAtomic(path_, content, 0600));
  secret_ = secret;
  generation_ = generation;
  return OkStatus();
}

}  // namespace mt::node
