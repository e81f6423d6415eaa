// Frames: how rows of a history lie in a file (FORMAT.md). A frame is a header with its own
// checksum, which says what the frame holds, and a body with the columns and theirs. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "daemon/telemetry/history_table.h"

namespace mt::daemon {

// As on disk, little-endian; persistent.
struct HistoryFrameHeader {
  static constexpr uint32_t kMagic = 0x3148'544D;  // "MTH1": the 1 is the format's version
  uint32_t magic = kMagic;
  uint32_t level = 0;
  uint32_t num_rows = 0;
  uint32_t num_columns = 0;
  uint64_t body_bytes = 0;  // a multiple of 8
  int64_t first_step = 0;   // of the first row
  int64_t last_step = 0;
  int64_t first_time_us = 0;
  int64_t last_time_us = 0;
  int64_t last_epoch = 0;
  uint64_t body_sum = 0;    // xxh3 of the body
  uint64_t header_sum = 0;  // xxh3 of all before it
};
static_assert(sizeof(HistoryFrameHeader) == 80);

// Frames begin at multiples of this, so that a reader finds the next one behind damage.
inline constexpr size_t kHistoryFrameAlign = 8;
inline constexpr uint32_t kHistoryFrameRows = 1'024;     // of level 0
inline constexpr uint32_t kHistoryBucketFrameRows = 64;  // of the other levels

// Header and body. At least one row, at most kHistoryFrameRows.
std::string EncodeHistoryFrame(const HistoryTable& rows);
// nullopt: no frame begins here.
std::optional<HistoryFrameHeader> ParseHistoryHeader(std::string_view bytes);
// The rows of `body`, with the columns that are named (empty: all). DataLoss where it is damaged.
StatusOr<HistoryTable> DecodeHistoryBody(const HistoryFrameHeader& header, std::string_view body,
                                         std::span<const std::string> names = {});

}  // namespace mt::daemon
