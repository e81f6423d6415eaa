// Entries with checksums, read as a whole file: an unreadable part is skipped eight bytes at a time
// until an entry parses again.
#include "daemon/telemetry/history_evals.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>
#include <xxhash.h>

#include "common/base/log.h"
#include "megatrain/v1/types.pb.h"

namespace mt::daemon {
namespace {

namespace v1 = megatrain::v1;

// An entry is this header, an EvalRecord in protobuf's format, and zeros up to a multiple of 8
// bytes. Little-endian.
struct EvalHeader {
  static constexpr uint32_t kMagic = 0x4548'544D;  // "MTHE"
  uint32_t magic = kMagic;
  uint32_t bytes = 0;
  uint64_t sum = 0;  // XXH3-64 of the record
};
static_assert(sizeof(EvalHeader) == 16);
constexpr size_t kEvalAlign = 8;
// With more than this unwritten, evaluations are dropped: the disk has refused them for long.
constexpr size_t kHeldBytes = 1 << 20;

size_t EvalAligned(size_t bytes) { return (bytes + kEvalAlign - 1) / kEvalAlign * kEvalAlign; }

bool ParseEval(std::string_view bytes, v1::EvalRecord* eval, size_t* size) {
  EvalHeader header;
  if (bytes.size() < sizeof(header)) return false;
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.magic != EvalHeader::kMagic || bytes.size() - sizeof(header) < header.bytes) {
    return false;
  }
  const std::string_view record = bytes.substr(sizeof(header), header.bytes);
  if (XXH3_64bits(record.data(), record.size()) != header.sum) return false;
  *size = std::min(bytes.size(), sizeof(header) + EvalAligned(header.bytes));
  return eval->ParseFromArray(record.data(), static_cast<int>(record.size()));
}

}  // namespace

void HistoryEvals::Append(const v1::EvalRecord& eval) {
  if (unwritten_.size() > kHeldBytes) return;
  const std::string record = eval.SerializeAsString();
  EvalHeader header;
  header.bytes = static_cast<uint32_t>(record.size());
  header.sum = XXH3_64bits(record.data(), record.size());
  unwritten_.append(reinterpret_cast<const char*>(&header), sizeof(header));
  unwritten_ += record;
  unwritten_.resize(EvalAligned(unwritten_.size()));
}

HistoryEvals::HistoryEvals(std::string path) : file_(std::move(path), kEvalAlign) {}

Status HistoryEvals::Write() {
  RETURN_IF_ERROR(file_.Append(unwritten_));
  unwritten_.clear();
  return OkStatus();
}

std::vector<v1::EvalRecord> ReadHistoryEvals(const std::string& path, const std::string& more,
                                             int64_t from, int64_t to) {
  std::string content;
  if (base::Exists(path)) {
    auto read = base::ReadFile(path);
    if (!read.ok()) log::Warn("history: no evaluations", {{"error", base::Message(read.status())}});
    if (read.ok()) content = std::move(read).value();
  }
  content.resize(EvalAligned(content.size()));
  content += more;
  std::vector<v1::EvalRecord> out;
  size_t skipped = 0;
  for (std::string_view rest = content; !rest.empty();) {
    v1::EvalRecord eval;
    size_t size = std::min(kEvalAlign, rest.size());
    if (ParseEval(rest, &eval, &size)) {
      std::erase_if(out, [&](const v1::EvalRecord& before) {
        return before.split() == eval.split() && before.step() >= eval.step();
      });
      if (eval.step() >= from && eval.step() <= to) out.push_back(std::move(eval));
    } else {
      skipped += size;
    }
    rest.remove_prefix(size);
  }
  if (skipped != 0) {
    log::Warn("history: damaged part skipped", {{"file", path}, {"bytes", skipped}});
  }
  return out;
}

}  // namespace mt::daemon
