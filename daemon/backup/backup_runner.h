// Makes a backup of the coordinator's state while it runs: copies the database step by step on the
// core's thread, checks the copy and sends it with the history on a thread of its own. What readers
// were shown before is in it. One at a time. Thread-safe.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <thread>

#include "common/base/mutex.h"
#include "common/base/status.h"

namespace mt::daemon {

class SqliteStore;

class BackupRunner {
 public:
  // `store` outlives this object; the copy is made in a folder below `state_dir`.
  BackupRunner(SqliteStore* store, std::string state_dir);
  ~BackupRunner();  // Stop
  BackupRunner(const BackupRunner&) = delete;
  BackupRunner& operator=(const BackupRunner&) = delete;

  struct Reader {
    // Called first, where it is set: returns in the round of the core, or after it, whose commit
    // writes everything that readers were shown. The copy begins in a later one.
    std::function<void()> flush = nullptr;
    // Takes the next bytes of the archive; false: the reader has left. Blocks while it is slow.
    std::function<bool(std::string bytes)> take;
    // Called once, at the end; nothing is called afterwards.
    std::function<void(const Status& status)> end;
  };
  // Runs a task on the core's thread soon; it must do so until Stop has returned.
  using Post = std::function<void(std::function<void()> task)>;
  // Returns at once. The end is FailedPrecondition where another backup is under way,
  // ResourceExhausted where the copy would not fit on the state's disk, DataLoss where the store is
  // damaged, Cancelled after the reader has left or Stop.
  void Start(const Post& post, Reader reader);
  // Ends a backup that is under way; its reader must not block in `take` any more. Blocks.
  void Stop();

 private:
  // False where one is under way, or after Stop.
  bool Begin();
  Status Run(const Post& post, const Reader& reader);
  Status Copy(const Post& post, const std::string& path);
  Status Send(const std::string& copy, const Reader& reader) const;

  SqliteStore* const store_;
  const std::string state_dir_;
  std::atomic<bool> stopping_ = false;
  base::Mutex mu_;
  bool busy_ GUARDED_BY(mu_) = false;
  std::thread thread_ GUARDED_BY(mu_);
};

}  // namespace mt::daemon
