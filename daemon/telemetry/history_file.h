// One job's file of frames, append-only: an index of its frames in memory, bodies on disk. Damage
// is found by checksums, logged, and skipped. Writing and the index are for one thread; bodies may
// be read on any, through a snapshot of the index.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/files.h"
#include "common/base/status.h"
#include "daemon/telemetry/history_frame.h"

namespace mt::daemon {

struct HistoryFrameRef {
  HistoryFrameHeader header;
  int64_t offset;  // of the header
  // Rows from this step on were rolled back: they are in the frame but not in the history.
  int64_t live_below = std::numeric_limits<int64_t>::max();
};

// What a reader needs of a file, apart from it.
struct HistoryFrames {
  std::shared_ptr<const base::Fd> fd;  // null: there is no file
  std::string path;
  std::vector<HistoryFrameRef> refs;
};

// The live rows of one frame; DataLoss names file and steps where it is damaged.
StatusOr<HistoryTable> ReadHistoryFrame(const HistoryFrames& file, const HistoryFrameRef& ref,
                                        std::span<const std::string> names = {});

class HistoryFile {
 public:
  explicit HistoryFile(std::string path) : path_(std::move(path)) {}

  // Reads the index. A file that is not there is empty. With `repair` what an interrupted write
  // left at the end is cut off.
  Status Load(bool repair);
  // Writes frames behind the others and syncs. After an error nothing was added.
  Status Append(std::span<const HistoryTable> frames);
  // Steps from this one on were rolled back.
  void Cut(int64_t step);

  // Of `level`, with at least one live row behind `after_step`.
  HistoryFrames Frames(int level, int64_t after_step) const;
  // Of the last live row of the level; 0: none.
  int64_t LastStep(int level) const;
  // Of level 0; nullptr: there is none.
  const HistoryFrameRef* FirstStepFrame() const;
  const HistoryFrameRef* LastStepFrame() const;
  size_t num_frames() const { return refs_.size(); }
  size_t MemoryBytes() const { return refs_.capacity() * sizeof(HistoryFrameRef); }

 private:
  Status OpenForWriting();
  Status Scan(int64_t size, bool repair);
  void Add(const HistoryFrameHeader& header, int64_t offset);
  void DropBadEnd(int64_t size, bool repair);
  int64_t FindHeader(int64_t from, int64_t size) const;

  std::string path_;
  std::shared_ptr<base::Fd> fd_;
  bool writable_ = false;
  int64_t end_ = 0;
  std::vector<HistoryFrameRef> refs_;  // in the order of the file
};

}  // namespace mt::daemon
