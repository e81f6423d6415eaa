// What a power loss may leave of files: a log of all file operations below one folder while the
// code under test runs, and from it every state in which a crash may leave that folder. Only what
// was synced is certain to survive:
//   - a file's bytes are those of its last fsync, of the moment of the crash, or a mixture;
//   - an entry that was made, renamed or removed in a folder is certain once that folder was synced
//     after it, and present or absent, each by itself, before.
// The operations are seen by replacing the C library's functions in the test program
// (crash_hooks.cc), so the code under test has nothing to do with it. One log at a time records;
// any thread may work on files meanwhile. Operations that reach the disk in another way (a child
// process, stdio's buffers, io_uring) are not seen: Check() finds that out.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mt::crash {

// A file's bytes; null: a folder.
using Content = std::shared_ptr<const std::string>;
// What lies below the root, by path relative to it.
using Tree = std::map<std::string, Content>;

struct Operation {
  enum class Kind {
    kCreate,
    kMakeFolder,
    kWrite,
    kSync,
    kRename,
    kLink,
    kRemove,
    kMark,
    kOpen,  // of what is there; this and kRead are told to faults only, and stand in no log
    kRead,
  };
  Kind kind;
  std::string path;  // relative to the root; a mark's name
  std::string to;    // of kRename and kLink
  Content content;   // of kWrite: the whole file after it
  int thread = 0;    // that did it
};

// What is done to an operation instead.
struct Fault {
  int error = 0;           // it fails with this errno; 0: it does not
  bool shortened = false;  // a read or a write does half of its bytes
};

// "rename a.tmp to a"
std::string Describe(const Operation& operation);

class Replay;

class CrashLog {
 public:
  // Records from now on. What lies below `root` (an absolute path, no symbolic link) is durable.
  explicit CrashLog(std::string root);
  ~CrashLog();
  CrashLog(const CrashLog&) = delete;
  CrashLog& operator=(const CrashLog&) = delete;

  // Puts a name into the log: "acknowledged".
  void Mark(std::string_view name);
  // The call `nth` (from 1 on) of fsync or fdatasync below the root does nothing and fails with
  // EIO.
  void FailSync(int nth) { failing_sync_ = nth; }
  // Asked before each operation below the root, on its thread, one at a time; what it does to files
  // itself is not seen. Set before the code under test runs.
  using Faults = std::function<Fault(const Operation& next)>;
  void SetFaults(Faults faults) { faults_ = std::move(faults); }
  // Ends recording; to be called before the log is read.
  void Stop();

  const std::vector<Operation>& operations() const { return operations_; }
  // What lay below the root when recording began.
  const Tree& before() const { return before_; }
  // Number of operations before the mark; the log must have it.
  size_t Before(std::string_view mark) const;
  // Every state (each once) that a crash after the first `count` operations may leave. Where more
  // than four entries are uncertain: none of them, all, each alone, all but each, and the first n
  // for every n. The bytes of unsynced files are the old ones, the new ones, half of the new ones
  // or zeros, in all files alike and, old ones, in each file alone.
  std::vector<Tree> Outcomes(size_t count) const;
  // Lays every outcome of a crash after n operations, from <= n <= to, out in the folder `scratch`
  // and calls `read`, which returns what is wrong with it or nothing. The first complaint, with the
  // operation after which the crash came and what it left; empty where there is none.
  std::string FirstComplaint(
      size_t from, size_t to, const std::string& scratch,
      const std::function<std::string(const std::string& folder)>& read) const;
  // What the running system sees after the first `count` operations.
  Tree Live(size_t count) const;
  // Whether a crash after the first `count` operations certainly leaves this file, as it is at that
  // moment, in its folder, provided the folder itself is left.
  bool IsDurable(size_t count, std::string_view path) const;
  // Empty where replaying the log gives exactly what lies on disk now, else the first difference.
  std::string Check() const;

  // For crash_hooks.cc, with the log's lock held around the operation itself.
  std::mutex& mutex() { return mutex_; }
  // Whether an absolute path lies below the root (then *relative is set).
  bool Covers(const std::string& absolute, std::string* relative) const;
  void Add(Operation operation) { operations_.push_back(std::move(operation)); }
  bool FailsNow() { return ++syncs_ == failing_sync_; }
  Fault FaultOf(const Operation& next) const { return faults_ ? faults_(next) : Fault{}; }

 private:
  Replay ReplayOf(size_t count) const;

  const std::string root_;
  Tree before_;  // when recording began
  std::mutex mutex_;
  std::vector<Operation> operations_;
  bool recording_ = true;
  int syncs_ = 0;
  int failing_sync_ = 0;
  Faults faults_;
};

// The log that records now, or nullptr.
CrashLog* Recording();
// Of a folder on disk.
Tree ReadTree(const std::string& folder);
// Makes `folder` hold exactly this.
void WriteTree(const Tree& tree, const std::string& folder);
// For messages: paths and sizes.
std::string Describe(const Tree& tree);

}  // namespace mt::crash
