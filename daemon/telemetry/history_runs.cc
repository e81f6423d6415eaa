// An agent may send a report again, so an epoch may be told twice.
#include "daemon/telemetry/history_runs.h"

#include <string_view>
#include <utility>

#include "common/base/log.h"
#include "megatrain/v1/types.pb.h"

namespace mt::daemon {
namespace {

namespace v1 = megatrain::v1;

constexpr uint32_t kRunMagic = 0x5248'544D;  // "MTHR"

}  // namespace

HistoryRuns::HistoryRuns(std::string path) : HistoryEntries(std::move(path), kRunMagic) {}

void HistoryRuns::Append(const v1::EpochRun& run) { AppendRecord(run.SerializeAsString()); }

std::vector<v1::EpochRun> ReadHistoryRuns(const std::string& path, const std::string& more) {
  std::vector<v1::EpochRun> out;
  const Status read = ReadHistoryEntries(path, kRunMagic, more, [&](std::string_view record) {
    v1::EpochRun run;
    if (!run.ParseFromArray(record.data(), static_cast<int>(record.size()))) return false;
    std::erase_if(out, [&](const v1::EpochRun& before) { return before.epoch() == run.epoch(); });
    out.push_back(std::move(run));
    return true;
  });
  if (!read.ok()) log::Warn("history: no runs", {{"error", base::Message(read)}});
  return out;
}

}  // namespace mt::daemon
