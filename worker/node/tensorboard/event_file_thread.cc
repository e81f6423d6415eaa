// A queue of appends and closes in the order in which they came; the thread alone knows the files.
#include "worker/node/tensorboard/event_file_thread.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <deque>
#include <dirent.h>
#include <fcntl.h>
#include <filesystem>
#include <map>
#include <optional>
#include <pthread.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/spec/roots.h"
#include "common/tensorboard/event_file.h"
#include "worker/node/process/log_access.h"

namespace mt::node {
namespace {

// The largest start in the names of the folder's event files; -1: there is none.
int64_t NewestStart(const base::Fd& folder) {
  int64_t newest = -1;
  const int copy = ::openat(folder.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* const listed = copy < 0 ? nullptr : ::fdopendir(copy);
  if (listed == nullptr) {
    if (copy >= 0) ::close(copy);
    return newest;
  }
  while (const dirent* entry = ::readdir(listed)) {
    if (const auto start = tensorboard::StartOfEventFile(entry->d_name))
      newest = std::max(newest, *start);
  }
  ::closedir(listed);
  return newest;
}

// The folder below the log root, made where it is missing.
StatusOr<base::Fd> OpenFolder(const EventFilePlace& place) {
  ASSIGN_OR_RETURN(const std::string path, spec::ResolveBelow(place.log_root, place.folder));
  RETURN_IF_ERROR(base::MakeDirs(std::filesystem::path(path).parent_path().string()));
  // What a job calls itself is as private as its logs.
  if (::mkdir(path.c_str(), kLogFolderMode) != 0 && errno != EEXIST)
    return base::ErrnoError(errno, "make " + path);
  return spec::OpenBelow(place.log_root, place.folder, O_RDONLY | O_DIRECTORY);
}

// A file that is new, and sorts behind all others of its folder.
class EventFile {
 public:
  // Errors: those of making folders and files; a link that leaves the log root.
  static StatusOr<EventFile> Make(const EventFilePlace& place, int64_t now_s) {
    ASSIGN_OR_RETURN(const base::Fd folder, OpenFolder(place));
    for (int64_t start = std::max(now_s, NewestStart(folder) + 1);; ++start) {
      const std::string name = tensorboard::EventFileName(start, place.label);
      base::Fd fd(::openat(folder.get(), name.c_str(),
                           O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, kLogMode));
      const std::string path = base::JoinPath(place.log_root, base::JoinPath(place.folder, name));
      if (fd) return EventFile(std::move(fd), path);
      if (errno != EEXIST) return base::ErrnoError(errno, "make " + path);
    }
  }

  // All of it or nothing: what a failed write has left is cut off. An error that this does not mend
  // is one of every later call.
  Status Append(const std::string& records) {
    RETURN_IF_ERROR(broken_);
    size_t done = 0;
    while (done < records.size()) {
      const ssize_t n = ::pwrite(fd_.get(), records.data() + done, records.size() - done,
                                 size_ + static_cast<int64_t>(done));
      if (n < 0 && errno == EINTR) continue;
      if (n > 0) {
        done += static_cast<size_t>(n);
        continue;
      }
      Status failed = base::ErrnoError(n < 0 ? errno : EIO, "write " + path_);
      if (::ftruncate(fd_.get(), size_) != 0) broken_ = failed;
      return failed;
    }
    size_ += static_cast<int64_t>(records.size());
    return OkStatus();
  }

 private:
  EventFile(base::Fd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}

  base::Fd fd_;
  std::string path_;
  int64_t size_ = 0;
  Status broken_;
};

}  // namespace

struct EventFileThread::State {
  enum class Kind { kBegin, kAppend, kClose };
  struct Item {
    Kind kind;
    EventFilePlace place;
    std::string records;
  };
  struct Open {
    std::string head;               // empty once it is written
    std::optional<EventFile> file;  // nullopt until it could be made
    bool failing = false;           // said
  };

  State(const base::Clock* wall, size_t most) : clock(wall), max_queued_bytes(most) {}

  void Push(Item item) {
    const base::MutexLock lock(&mu);
    const bool full = queued_bytes + item.records.size() > max_queued_bytes;
    if (full && item.kind == Kind::kAppend) {
      if (!std::exchange(dropping, true)) {
        log::Error("event files lose steps: the log root takes them too slowly",
                   {{"folder", item.place.folder}, {"waiting_bytes", queued_bytes}});
      }
      return;
    }
    queued_bytes += item.records.size();
    queue.push_back(std::move(item));
    changed.NotifyAll();
  }

  void Loop() {
    ::pthread_setname_np(::pthread_self(), "mt-events");
    base::MutexLock lock(&mu);
    while (!stopping || !queue.empty()) {
      if (queue.empty()) {
        dropping = false;
        changed.Wait(&mu);
        continue;
      }
      const Item item = std::move(queue.front());
      queue.pop_front();
      mu.Unlock();
      Do(item);
      mu.Lock();
      queued_bytes -= item.records.size();
    }
  }

  void Do(const Item& item) {
    if (item.kind == Kind::kClose) {
      files.erase(item.place);
      return;
    }
    Open& open = files[item.place];
    if (item.kind == Kind::kBegin) open.head = item.records;
    const Status written = Write(item, &open);
    if (!written.ok() && !open.failing) {
      log::Error("a job's event file lacks steps until this is mended",
                 {{"folder", item.place.folder}, {"why", base::Message(written)}});
    }
    open.failing = !written.ok();
  }

  Status Write(const Item& item, Open* open) const {
    if (!open->file) {
      const int64_t now_s = base::ToUnixMicros(clock->WallNow()) / 1'000'000;
      ASSIGN_OR_RETURN(EventFile made, EventFile::Make(item.place, now_s));
      open->file.emplace(std::move(made));
    }
    std::string bytes = open->head;
    if (item.kind == Kind::kAppend) bytes += item.records;
    RETURN_IF_ERROR(open->file->Append(bytes));
    open->head.clear();
    return OkStatus();
  }

  const base::Clock* const clock;
  const size_t max_queued_bytes;
  std::map<EventFilePlace, Open> files;  // used by the thread only
  base::Mutex mu;
  base::CondVar changed;
  std::deque<Item> queue GUARDED_BY(mu);
  size_t queued_bytes GUARDED_BY(mu) = 0;  // of the queue, and of what is being written
  bool dropping GUARDED_BY(mu) = false;    // said
  bool stopping GUARDED_BY(mu) = false;
  std::thread thread;
};

EventFileThread::EventFileThread(const base::Clock* clock, size_t max_queued_bytes)
    : state_(std::make_unique<State>(clock, max_queued_bytes)) {
  state_->thread = std::thread([state = state_.get()] { state->Loop(); });
}

EventFileThread::~EventFileThread() {
  {
    const base::MutexLock lock(&state_->mu);
    state_->stopping = true;
    state_->changed.NotifyAll();
  }
  state_->thread.join();
}

void EventFileThread::Begin(const EventFilePlace& place, std::string head) {
  state_->Push({.kind = State::Kind::kBegin, .place = place, .records = std::move(head)});
}

void EventFileThread::Append(const EventFilePlace& place, std::string records) {
  state_->Push({.kind = State::Kind::kAppend, .place = place, .records = std::move(records)});
}

void EventFileThread::Close(const EventFilePlace& place) {
  state_->Push({.kind = State::Kind::kClose, .place = place, .records = {}});
}

}  // namespace mt::node
