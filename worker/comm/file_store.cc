// Keys are mapped to file names; base::WriteFileAtomic makes values appear at once.
#include "worker/comm/file_store.h"

#include <chrono>
#include <thread>

#include "common/base/files.h"

namespace mt::comm {

// Keys contain slashes ("dp/3/1"), which file names cannot. '%' is escaped too, so that no two keys
// share a file.
std::string FileStore::PathOf(const std::string& key) const {
  std::string file;
  for (const char c : key) {
    if (c == '%') {
      file += "%25";
    } else if (c == '/') {
      file += "%2F";
    } else {
      file += c;
    }
  }
  return base::JoinPath(folder_, file + ".addr");
}

Status FileStore::Set(const std::string& key, std::string_view bytes) {
  const std::string path = PathOf(key);
  if (base::Exists(path)) {
    ASSIGN_OR_RETURN(const std::string present, base::ReadFile(path));
    if (present == bytes) return OkStatus();
    return base::Error(absl::StatusCode::kAlreadyExists,
                       "{} is there with another value: give every run an empty folder", path);
  }
  RETURN_IF_ERROR(base::MakeDirs(folder_));
  return base::WriteFileAtomic(path, bytes);
}

StatusOr<std::string> FileStore::Get(const std::string& key, base::MonotonicTime deadline) {
  const std::string path = PathOf(key);
  while (!base::Exists(path)) {
    if (base::Clock::Real()->Now() >= deadline) {
      return base::Error(absl::StatusCode::kDeadlineExceeded,
                         "rendezvous: nobody has written {} in time", path);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return base::ReadFile(path);
}

}  // namespace mt::comm
