// Whether a data file is still what it was when a run mapped it: size, times and number of the file
// and, where they differ, a digest of a sample. Asked at each save, never in a step.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/files.h"
#include "common/base/status.h"
#include "worker/data/mapped_file.h"

namespace mt::data {

// XXH3-128, as 32 hex digits, of the size and of 64 blocks of 16 KiB, evenly spread, the first and
// the last among them; of all bytes where there are no more.
std::string SampledDigest(std::string_view bytes);

// One thread.
class FileWatch {
 public:
  struct Args {
    std::string path{};
    base::FileOpener open{};
    FileFacts facts{};        // when it was mapped
    std::string digest{};     // SampledDigest then
    bool may_change = false;  // another content is said, not refused
  };
  explicit FileWatch(Args args) : args_(std::move(args)), mapped_bytes_(args_.facts.bytes) {}

  // Looks at the file; blocks for a stat, and where that differs for the reads of a sample.
  // kDataLoss where the mapped file was cut, kFailedPrecondition where it was written over: what
  // was read since the last look is not what the run began with. What harms the next start alone is
  // a warning, given once: another file of this name, none, a longer one, one that cannot be looked
  // at.
  Status Check();

  const std::string& path() const { return args_.path; }
  const FileFacts& facts() const { return args_.facts; }
  void set_may_change(bool may_change) { args_.may_change = may_change; }

 private:
  // The mapped file itself has changed.
  Status CheckMapped(const base::Fd& fd, const FileFacts& now);
  // Another file has its name; the mapping stays with the old one.
  void SayReplaced(const base::Fd& fd, const FileFacts& now);
  void SayOnce(std::string_view what);

  Args args_;
  int64_t mapped_bytes_;
  bool replaced_ = false;  // facts are those of a file that is not mapped
  std::string said_;       // the newest warning
};

}  // namespace mt::data
