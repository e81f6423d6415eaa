// Frames: the form of a history's rows in a file (FORMAT.md). A frame is a header with its own
// checksum, which describes the content, and a body of columns with a checksum in the header. Pure;
// thread-safe.
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

// The header as it is on disk, little-endian. The layout is persistent.
struct HistoryFrameHeader {
  static constexpr uint32_t kMagic = 0x3148'544D;  // "MTH1", where 1 is the format's version
  uint32_t magic = kMagic;
  uint32_t level = 0;
  uint32_t num_rows = 0;
  uint32_t num_columns = 0;
  uint64_t body_bytes = 0;  // a multiple of 8
  int64_t first_step = 0;   // step of the first row
  int64_t last_step = 0;
  int64_t first_time_us = 0;
  int64_t last_time_us = 0;
  int64_t last_epoch = 0;
  uint64_t body_sum = 0;    // XXH3-64 of the body
  uint64_t header_sum = 0;  // XXH3-64 of all bytes of the header before it
};
static_assert(sizeof(HistoryFrameHeader) == 80);

// Frames begin at multiples of this many bytes, so that a reader finds the next one after damage.
inline constexpr size_t kHistoryFrameAlign = 8;
inline constexpr uint32_t kHistoryFrameRows = 1'024;     // rows per frame of single steps (level 0)
inline constexpr uint32_t kHistoryBucketFrameRows = 64;  // rows per frame of the other levels

// Encodes header and body of 1 to kHistoryFrameRows rows (CHECK).
std::string EncodeHistoryFrame(const HistoryTable& rows);
// The header at the beginning of `bytes`; nullopt where none begins there or its checksum is wrong.
std::optional<HistoryFrameHeader> ParseHistoryHeader(std::string_view bytes);
// The rows in `body`, with the named columns (empty: all). DataLoss where the body is damaged.
StatusOr<HistoryTable> DecodeHistoryBody(const HistoryFrameHeader& header, std::string_view body,
                                         std::span<const std::string> names = {});

}  // namespace mt::daemon
