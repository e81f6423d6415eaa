// The checksum is XXH3-64 of the body, little-endian.
#include "worker/node/ranks/checked_file.h"

#include <algorithm>

#include "common/base/files.h"
#include "common/base/ids.h"

namespace mt::node {
namespace {

constexpr size_t kHeaderBytes = 16;  // magic, then the checksum of the rest

std::string Checksum(std::string_view body) {
  uint64_t sum = base::Hash64(body);
  std::string bytes;
  for (int i = 0; i < 8; ++i, sum >>= 8) bytes.push_back(static_cast<char>(sum & 0xff));
  return bytes;
}

}  // namespace

Status WriteCheckedFile(const std::string& path, std::string_view magic, std::string_view body) {
  return base::WriteFileAtomic(path, std::string(magic) + Checksum(body) + std::string(body), 0600);
}

StatusOr<std::string> ReadCheckedFile(const std::string& path, std::string_view magic) {
  ASSIGN_OR_RETURN(const std::string bytes, base::ReadFile(path));
  const std::string_view view = bytes;
  const std::string_view body = view.substr(std::min(kHeaderBytes, view.size()));
  if (view.substr(0, magic.size()) != magic ||
      view.substr(magic.size(), kHeaderBytes - magic.size()) != Checksum(body)) {
    return base::DataLoss("{}: damaged (no header, or the checksum is wrong)", path);
  }
  return std::string(body);
}

}  // namespace mt::node
