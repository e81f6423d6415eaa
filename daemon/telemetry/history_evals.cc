// Repeats and what a rollback undid are in the file, and left out as it is read.
#include "daemon/telemetry/history_evals.h"

#include <string_view>
#include <utility>

#include "common/base/log.h"
#include "megatrain/v1/types.pb.h"

namespace mt::daemon {
namespace {

namespace v1 = megatrain::v1;

constexpr uint32_t kEvalMagic = 0x4548'544D;  // "MTHE"

}  // namespace

HistoryEvals::HistoryEvals(std::string path) : HistoryEntries(std::move(path), kEvalMagic) {}

void HistoryEvals::Append(const v1::EvalRecord& eval) { AppendRecord(eval.SerializeAsString()); }

std::vector<v1::EvalRecord> ReadHistoryEvals(const std::string& path, const std::string& more,
                                             int64_t from, int64_t to, bool samples) {
  std::vector<v1::EvalRecord> out;
  const Status read = ReadHistoryEntries(path, kEvalMagic, more, [&](std::string_view record) {
    v1::EvalRecord eval;
    if (!eval.ParseFromArray(record.data(), static_cast<int>(record.size()))) return false;
    // The last step may have two: a part of the split, then all of it.
    std::erase_if(out, [&](const v1::EvalRecord& before) {
      const bool beside = before.step() == eval.step() && eval.final() && !before.final();
      return before.split() == eval.split() && before.step() >= eval.step() && !beside;
    });
    if (!samples) eval.clear_samples();
    if (eval.step() >= from && eval.step() <= to) out.push_back(std::move(eval));
    return true;
  });
  if (!read.ok()) log::Warn("history: no evaluations", {{"error", base::Message(read)}});
  return out;
}

}  // namespace mt::daemon
