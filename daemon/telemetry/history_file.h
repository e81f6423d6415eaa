// One job's append-only file of frames: an index of the frames in memory, their bodies on disk.
// Damage is found by checksums, logged, and skipped. Writing and the index belong to one thread;
// bodies may be read on any thread, through a snapshot of the index.
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

// A frame in the file.
struct HistoryFrameRef {
  HistoryFrameHeader header;
  int64_t offset;  // of the header, in bytes
  // Rows from this step on were rolled back: the frame contains them, the history does not.
  int64_t live_below = std::numeric_limits<int64_t>::max();
};

// A snapshot that a reader can use on another thread while the file grows.
struct HistoryFrames {
  std::shared_ptr<const base::Fd> fd;  // null: the file does not exist
  std::string path;
  std::vector<HistoryFrameRef> refs;
};

// Reads and decodes a frame without the rows that were rolled back, with the named columns (empty:
// all). DataLoss names file and steps where the frame is damaged. Blocks.
StatusOr<HistoryTable> ReadHistoryFrame(const HistoryFrames& file, const HistoryFrameRef& ref,
                                        std::span<const std::string> names = {});

// The writer's view of one file.
class HistoryFile {
 public:
  // Touches no file; see Load.
  explicit HistoryFile(std::string path) : path_(std::move(path)) {}

  // Reads the index; a missing file is empty. With `repair` the remainder of an interrupted write
  // is cut off the end. An error means that the file cannot be opened or read.
  Status Load(bool repair);
  // Writes frames behind the existing ones and syncs; creates the file where it is missing. After
  // an error nothing counts as added.
  Status Append(std::span<const HistoryTable> frames);
  // Records that steps from this one on were rolled back. The file itself is not changed.
  void Cut(int64_t step);

  // The frames of `level` that have at least one live row after `after_step`.
  HistoryFrames Frames(int level, int64_t after_step) const;
  // Step of the last live row of the level; 0: there is none.
  int64_t LastStep(int level) const;
  // The first and the last frame of single steps (level 0), or nullptr; valid until the index
  // changes.
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
