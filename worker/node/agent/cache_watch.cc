// Walks the folder, never through links. An index is touched when a run finds it, so that its time
// of modification is that of its last use.
#include "worker/node/agent/cache_watch.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <pthread.h>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mutex.h"
#include "common/base/plain_text.h"

namespace mt::node {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kIndexSuffix = ".mtindex";
constexpr std::string_view kTemporary = ".mtindex.tmp.";
constexpr std::chrono::hours kTemporaryAge{24};

struct CachedFile {
  fs::path path;
  fs::file_time_type used;
  int64_t bytes = 0;
  bool temporary = false;
};

std::vector<CachedFile> CachedFiles(const std::string& root) {
  std::vector<CachedFile> files;
  std::error_code error;
  auto at = fs::recursive_directory_iterator(root, error);
  for (; !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
    const std::string name = at->path().filename().string();
    const bool temporary = name.find(kTemporary) != std::string::npos;
    if (!temporary && !name.ends_with(kIndexSuffix)) continue;
    // What vanishes meanwhile is left out.
    std::error_code gone;
    if (at->is_symlink(gone) || !at->is_regular_file(gone)) continue;
    const auto used = at->last_write_time(gone);
    if (gone) continue;
    const auto bytes = static_cast<int64_t>(at->file_size(gone));
    if (!gone) files.push_back({at->path(), used, bytes, temporary});
  }
  return files;
}

// The name behind the image whose size the header has; "" where it is not there, as in the files of
// older programs and in unfinished ones. Only for people: nothing checks it.
std::string OwnerOf(const CachedFile& file) {
  constexpr int64_t kHeaderBytes = 128, kOwnerBytes = 128;
  constexpr size_t kImageBytesAt = 40;
  std::ifstream in(file.path, std::ios::binary);
  std::string bytes(kHeaderBytes, '\0');
  if (!in.read(bytes.data(), kHeaderBytes)) return "";
  int64_t image_bytes = 0;
  std::memcpy(&image_bytes, &bytes[kImageBytesAt], sizeof(image_bytes));
  if (image_bytes != file.bytes - kHeaderBytes - kOwnerBytes) return "";
  bytes.resize(kOwnerBytes);
  if (!in.seekg(-kOwnerBytes, std::ios::end) || !in.read(bytes.data(), kOwnerBytes)) return "";
  return base::CleanLine(bytes.substr(0, bytes.find('\0')));
}

// "ns/a 1024, ns/b 12", the largest first.
std::string OwnersText(const std::map<std::string, int64_t>& bytes_of) {
  constexpr size_t kMost = 5;
  std::vector<std::pair<int64_t, std::string>> owners;
  owners.reserve(bytes_of.size());
  for (const auto& [owner, bytes] : bytes_of)
    owners.emplace_back(-bytes, owner.empty() ? "unknown" : owner);
  std::sort(owners.begin(), owners.end());
  std::string text;
  for (size_t i = 0; i < std::min(kMost, owners.size()); ++i)
    text += fmt::format("{}{} {}", i == 0 ? "" : ", ", owners[i].second, -owners[i].first);
  if (owners.size() > kMost) text += fmt::format(", {} others", owners.size() - kMost);
  return text;
}

bool Remove(const CachedFile& file) {
  std::error_code error;
  fs::remove(file.path, error);
  if (error) {
    log::Warn("a file of the cache cannot be removed",
              {{"path", file.path.string()}, {"why", error.message()}});
  }
  return !error;
}

}  // namespace

CacheTrim TrimCache(const std::string& root, int64_t limit, fs::file_time_type now) {
  std::vector<CachedFile> files = CachedFiles(root);
  std::sort(files.begin(), files.end(), [](const CachedFile& a, const CachedFile& b) {
    return std::pair(a.used, a.path) < std::pair(b.used, b.path);
  });
  CacheTrim trim;
  for (const CachedFile& file : files) trim.left += file.bytes;
  for (const CachedFile& file : files) {
    const bool goes = file.temporary ? now - file.used > kTemporaryAge : trim.left > limit;
    const std::string owner = OwnerOf(file);
    const bool gone = goes && Remove(file);
    (gone ? trim.removed_of : trim.left_of)[owner] += file.bytes;
    if (!gone) continue;
    trim.left -= file.bytes;
    trim.removed += file.bytes;
  }
  if (trim.removed > 0) {
    log::Info("the cache was trimmed", {{"root", root},
                                        {"removed_bytes", trim.removed},
                                        {"left_bytes", trim.left},
                                        {"limit_bytes", limit}});
    log::Info("whose files the cache had and has, in bytes",
              {{"removed_of", OwnersText(trim.removed_of)}, {"left_of", OwnersText(trim.left_of)}});
  }
  return trim;
}

struct CacheWatch::State {
  void Loop() {
    ::pthread_setname_np(::pthread_self(), "mt-cache");
    base::MutexLock lock(&mu);
    while (!stopping) {
      mu.Unlock();
      TrimCache(root, limit, fs::file_time_type::clock::now());
      mu.Lock();
      const auto next = base::Clock::Real()->Now() + interval;
      while (!stopping && base::Clock::Real()->Now() < next) changed.WaitUntil(&mu, next);
    }
  }

  std::string root;
  int64_t limit = 0;
  std::chrono::milliseconds interval{};
  base::Mutex mu;
  base::CondVar changed;
  bool stopping GUARDED_BY(mu) = false;
  std::thread thread;
};

CacheWatch::CacheWatch(std::string root, int64_t limit, std::chrono::milliseconds interval)
    : state_(std::make_unique<State>()) {
  state_->root = std::move(root);
  state_->limit = limit;
  state_->interval = interval;
  state_->thread = std::thread([state = state_.get()] { state->Loop(); });
}

CacheWatch::~CacheWatch() {
  {
    base::MutexLock lock(&state_->mu);
    state_->stopping = true;
    state_->changed.NotifyAll();
  }
  state_->thread.join();
}

}  // namespace mt::node
