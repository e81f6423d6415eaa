// Writing back begins at once, so that no sync has much to wait for.
#include "worker/data/prepare/record_keeper.h"

#include <cerrno>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

namespace mt::data {

RecordKeeper::RecordKeeper(const Args& args)
    : args_(args), begun_bytes_(args.begin_bytes), recorded_bytes_(args.begin_bytes) {
  thread_ = std::thread([this] { Run(); });
}

RecordKeeper::~RecordKeeper() { (void)Stop(); }

Status RecordKeeper::Stop() {
  {
    const base::MutexLock lock(&mu_);
    stop_ = true;
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
  const base::MutexLock lock(&mu_);
  return status_;
}

Status RecordKeeper::Offer(const PrepareRecord& record) {
  const base::MutexLock lock(&mu_);
  offered_ = record;
  changed_.NotifyAll();
  return status_;
}

void RecordKeeper::Run() {
  ::pthread_setname_np(::pthread_self(), "mt-record");
  std::optional<PrepareRecord> newest;  // not recorded yet
  bool failed = false;
  for (bool last = false; !last;) {
    {
      const base::MutexLock lock(&mu_);
      while (!stop_ && !offered_) changed_.Wait(&mu_);
      if (offered_) newest.swap(offered_);
      offered_.reset();
      last = stop_;
    }
    // The kernel reports a page that it could not write once: after that nothing may be recorded.
    if (!newest || failed) continue;
    const StatusOr<bool> kept = Keep(*newest, last);
    if (kept.ok() && *kept) newest.reset();
    if (kept.ok()) continue;
    failed = true;
    const base::MutexLock lock(&mu_);
    status_ = kept.status();
  }
}

StatusOr<bool> RecordKeeper::Keep(const PrepareRecord& record, bool last) {
  constexpr int64_t kBeginBytes = int64_t{16} << 20;
  if (record.bin_bytes - begun_bytes_ >= kBeginBytes) {
    // A hint: where the file system has no such call, the syncs do it all.
    ::sync_file_range(args_.bin_fd, begun_bytes_, record.bin_bytes - begun_bytes_,
                      SYNC_FILE_RANGE_WRITE);
    begun_bytes_ = record.bin_bytes;
  }
  if (args_.path.empty()) return true;
  const bool due = record.bin_bytes - recorded_bytes_ >= args_.every_bytes ||
                   Clock::now() - recorded_at_ >= std::chrono::seconds(10);
  if (!due && !last) return false;
  if (::fdatasync(args_.lengths_fd) != 0 || ::fdatasync(args_.bin_fd) != 0)
    return base::ErrnoError(errno, "sync the data beside " + args_.path);
  RETURN_IF_ERROR(WriteRecord(args_.path, record));
  recorded_bytes_ = record.bin_bytes;
  recorded_at_ = Clock::now();
  return true;
}

}  // namespace mt::data
