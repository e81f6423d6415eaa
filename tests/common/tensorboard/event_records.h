// Reads event files back, for tests: the framing with both of its sums, the messages by protobuf.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "common/tensorboard/crc32c.h"
#include "megatrain/v1/event_file.pb.h"

namespace mt::tensorboard {

inline uint64_t LittleEndian(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = bytes.size(); i > 0; --i) value = value << 8 | static_cast<uint8_t>(bytes[i - 1]);
  return value;
}

// The records of a whole file; a failure for what is no record.
inline std::vector<megatrain::v1::EventFileRecord> EventRecordsOf(std::string_view bytes) {
  std::vector<megatrain::v1::EventFileRecord> records;
  while (!bytes.empty()) {
    if (bytes.size() < 16 || LittleEndian(bytes.substr(0, 8)) > bytes.size() - 16) {
      ADD_FAILURE() << bytes.size() << " bytes are no record";
      break;
    }
    const size_t size = LittleEndian(bytes.substr(0, 8));
    const std::string_view data = bytes.substr(12, size);
    EXPECT_EQ(LittleEndian(bytes.substr(8, 4)), MaskedCrc32c(bytes.substr(0, 8)));
    EXPECT_EQ(LittleEndian(bytes.substr(12 + size, 4)), MaskedCrc32c(data));
    EXPECT_TRUE(records.emplace_back().ParseFromString(std::string(data)));
    bytes.remove_prefix(size + 16);
  }
  return records;
}

// "head 1", "5 lm loss=2.5": a line a record or scalar.
inline std::vector<std::string> EventLinesOf(std::string_view bytes) {
  using megatrain::v1::EventFileRecord;
  std::vector<std::string> lines;
  for (const EventFileRecord& record : EventRecordsOf(bytes)) {
    const std::string step = std::to_string(record.step());
    if (record.has_file_version()) lines.push_back(record.file_version());
    if (record.session_log().status() == EventFileRecord::SessionLog::START)
      lines.push_back("start " + step);
    for (const auto& value : record.summary().value()) {
      std::string line = step + " " + value.tag() + "=";
      if (value.has_simple_value()) line += testing::PrintToString(value.simple_value());
      lines.push_back(std::move(line));
    }
  }
  return lines;
}

}  // namespace mt::tensorboard
