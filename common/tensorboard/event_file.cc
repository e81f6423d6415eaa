// Messages are serialised by protobuf and framed by hand.
#include "common/tensorboard/event_file.h"

#include <charconv>

#include <fmt/format.h>

#include "common/tensorboard/crc32c.h"
#include "megatrain/v1/event_file.pb.h"

namespace mt::tensorboard {
namespace {

using megatrain::v1::EventFileRecord;

constexpr char kVersion[] = "brain.Event:2";
constexpr std::string_view kPrefix = "events.out.tfevents.";

void AppendLittleEndian(uint64_t value, int bytes, std::string* out) {
  for (int i = 0; i < bytes; ++i) out->push_back(static_cast<char>((value >> (8 * i)) & 0xff));
}

std::string Framed(const EventFileRecord& record) {
  const std::string data = record.SerializeAsString();
  std::string out;
  out.reserve(data.size() + 16);
  AppendLittleEndian(data.size(), 8, &out);
  AppendLittleEndian(MaskedCrc32c(out), 4, &out);
  out += data;
  AppendLittleEndian(MaskedCrc32c(data), 4, &out);
  return out;
}

EventFileRecord RecordAt(const EventTime& at) {
  EventFileRecord record;
  record.set_wall_time(static_cast<double>(at.time_us) / 1e6);
  record.set_step(at.step);
  return record;
}

}  // namespace

std::string FileHead(const EventTime& start) {
  EventFileRecord version = RecordAt({.step = 0, .time_us = start.time_us});
  version.set_file_version(kVersion);
  return Framed(version) + SessionStart(start);
}

std::string SessionStart(const EventTime& start) {
  EventFileRecord record = RecordAt(start);
  record.mutable_session_log()->set_status(EventFileRecord::SessionLog::START);
  return Framed(record);
}

std::string ScalarRecord(const EventTime& at, const std::vector<Scalar>& scalars) {
  if (scalars.empty()) return "";
  EventFileRecord record = RecordAt(at);
  for (const Scalar& scalar : scalars) {
    auto& value = *record.mutable_summary()->add_value();
    value.set_tag(scalar.tag);
    value.set_simple_value(static_cast<float>(scalar.value));
  }
  return Framed(record);
}

std::string EventFileName(int64_t start_s, std::string_view label) {
  return fmt::format("{}{:010}.{}", kPrefix, start_s, label);
}

std::optional<int64_t> StartOfEventFile(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  int64_t start = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), start);
  const bool whole = end == name.data() + name.size() || *end == '.';
  // Seconds, or milliseconds as some writers have them; others' names may be any number.
  constexpr int64_t kLatest = 99'999'999'999'999;
  if (error != std::errc() || !whole || start < 0 || start > kLatest) return std::nullopt;
  return start;
}

}  // namespace mt::tensorboard
