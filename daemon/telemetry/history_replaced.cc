// An entry is a frame of steps, as in the file of a job's steps.
#include "daemon/telemetry/history_replaced.h"

#include <algorithm>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/log.h"
#include "daemon/telemetry/history_frame.h"

namespace mt::daemon {
namespace {

constexpr uint32_t kReplacedMagic = 0x5848'544D;  // "MTHX"
// With more than this unwritten it is written at once: entries that wait are bounded.
constexpr size_t kWaitingBytes = 1 << 19;

void ReadFrames(const std::string& path, const std::string& more,
                std::span<const std::string> names,
                const std::function<void(const HistoryTable&)>& take) {
  const Status read = ReadHistoryEntries(path, kReplacedMagic, more, [&](std::string_view record) {
    const auto header = ParseHistoryHeader(record);
    if (!header.has_value() || header->level != 0 ||
        record.size() != sizeof(HistoryFrameHeader) + header->body_bytes)
      return false;
    const auto rows = DecodeHistoryBody(*header, record.substr(sizeof(HistoryFrameHeader)), names);
    if (!rows.ok()) return false;
    take(*rows);
    return true;
  });
  if (!read.ok()) log::Warn("history: no replaced steps", {{"error", base::Message(read)}});
}

}  // namespace

HistoryReplaced::HistoryReplaced(std::string path)
    : HistoryEntries(path, kReplacedMagic), path_(std::move(path)) {}

void HistoryReplaced::Append(const HistoryTable& steps) {
  const auto note = [this](const HistoryTable& rows) {
    for (size_t row = 0; row < rows.num_rows(); ++row) {
      const auto [at, is_new] = first_.try_emplace(rows.epochs[row], rows.steps[row]);
      if (!is_new) at->second = std::min(at->second, rows.steps[row]);
    }
  };
  if (!std::exchange(known_, true)) {
    const std::vector<std::string> no_columns = {""};
    ReadFrames(path_, unwritten(), no_columns, note);
  }
  HistoryTable fresh;
  const auto add = [&] {
    if (!fresh.empty()) AppendRecord(EncodeHistoryFrame(fresh));
    fresh = HistoryTable();
    if (unwritten().size() <= kWaitingBytes) return;
    const Status written = Write();
    if (!written.ok()) log::Warn("history: replaced steps", {{"error", base::Message(written)}});
  };
  for (size_t row = 0; row < steps.num_rows(); ++row) {
    const auto known = first_.find(steps.epochs[row]);
    if (known != first_.end() && steps.steps[row] >= known->second) continue;
    fresh.AppendRow(steps, row);
    if (fresh.num_rows() == kHistoryFrameRows) add();
  }
  add();
  note(steps);
}

HistoryTable ReadHistoryReplaced(const std::string& path, const std::string& more, int64_t epoch,
                                 int64_t from_step, int64_t to_step,
                                 std::span<const std::string> names) {
  // A later entry may have the steps before those of an earlier one, or some of them again.
  std::vector<HistoryTable> tables;
  std::map<int64_t, std::pair<size_t, size_t>> rows_of;  // step -> table and row
  ReadFrames(path, more, names, [&](const HistoryTable& rows) {
    for (size_t row = 0; row < rows.num_rows(); ++row) {
      if (rows.epochs[row] != epoch || rows.steps[row] < from_step || rows.steps[row] > to_step)
        continue;
      rows_of.try_emplace(rows.steps[row], tables.size(), row);
    }
    tables.push_back(rows);
  });
  HistoryTable out;
  for (const auto& [step, at] : rows_of) out.AppendRow(tables[at.first], at.second);
  return out;
}

}  // namespace mt::daemon
