// Finds the memory of a call by visiting its operands, and merges overlapping ranges, so that a
// replay can move a call to other memory without tearing views of one buffer apart.
#include "kernels/replay/call_log.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "kernels/replay/call_text.h"

namespace mt::kernels::replay {
namespace {

class ExtentCollector final : public OperandVisitor {
 public:
  void Operand(std::string_view /*name*/, Tensor* tensor, Access /*access*/) override {
    const bool indices = tensor->dtype == DType::kI32 || tensor->dtype == DType::kI64;
    Add(tensor->data, tensor->Bytes(), indices);
  }
  void View(std::string_view /*name*/, const Heads& heads, Access /*access*/) override {
    Add(heads.view->data, heads.Bytes(), false);
  }
  void Block(std::string_view /*name*/, void** /*data*/, int64_t /*bytes*/,
             Access /*access*/) override {}
  void Mark(std::string_view /*text*/) override {}

  std::vector<Extent> Merged() {
    std::sort(found_.begin(), found_.end(),
              [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
    std::vector<Extent> out;
    for (const Extent& next : found_) {
      if (!out.empty() && next.begin < out.back().begin + out.back().bytes) {
        Extent& last = out.back();
        last.bytes = std::max(last.bytes, next.begin + next.bytes - last.begin);
        last.indices = last.indices || next.indices;
      } else {
        out.push_back(next);
      }
    }
    return out;
  }

 private:
  void Add(void* data, int64_t bytes, bool indices) {
    if (bytes > 0)
      found_.push_back({.begin = static_cast<char*>(data), .bytes = bytes, .indices = indices});
  }

  std::vector<Extent> found_;
};

}  // namespace

std::vector<Extent> ExtentsOf(const OpCall& call) {
  ExtentCollector collector;
  call.Clone()->VisitOperands(&collector);
  return collector.Merged();
}

void CallLog::Start() {
  base::MutexLock lock(&mu_);
  on_ = true;
}

void CallLog::Stop() {
  base::MutexLock lock(&mu_);
  on_ = false;
}

void CallLog::Note(Stream& stream, const OpCall& call) {
  base::MutexLock lock(&mu_);
  if (!on_) return;
  const auto [known, is_new] = index_.try_emplace(SignatureOf(call), calls_.size());
  if (is_new) {
    LoggedCall logged{.call = call.Clone()};
    for (const Extent& extent : ExtentsOf(call)) {
      if (!extent.indices) continue;
      logged.indices.emplace_back(static_cast<size_t>(extent.bytes));
      device_->Copy(stream, logged.indices.back().data(), extent.begin, extent.bytes);
    }
    if (!logged.indices.empty()) stream.Synchronize();
    calls_.push_back(std::move(logged));
  }
  ++calls_[known->second].count;
}

std::vector<LoggedCall> CallLog::Take() {
  base::MutexLock lock(&mu_);
  CHECK(!on_) << "calls are still being logged";
  index_.clear();
  return std::exchange(calls_, {});
}

}  // namespace mt::kernels::replay
