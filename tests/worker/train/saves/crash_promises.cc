// What a run has told as saved or tagged stands in the log as marks.
#include "tests/worker/train/saves/crash_promises.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "common/base/files.h"
#include "worker/checkpoint/format/directory.h"
#include "worker/checkpoint/format/evaluation.h"
#include "worker/checkpoint/format/label.h"
#include "worker/checkpoint/format/run_list.h"

namespace mt::train {
namespace {

using Kind = crash::Operation::Kind;

constexpr std::string_view kBelow = "ckpts/tiny/";
constexpr int64_t kEpoch = 1;  // of the directory: the run is its first

std::string FolderOf(int64_t step) {
  return std::string(kBelow) + checkpoint::FolderName({step, kEpoch});
}

// The number after `what` in a mark, or 0.
int64_t MarkedStep(const std::string& mark, std::string_view what) {
  return mark.starts_with(what) ? std::stoll(mark.substr(what.size())) : 0;
}

// The step of a file in a checkpoint's folder, or 0.
int64_t StepOfPath(std::string_view path) {
  if (!path.starts_with(kBelow)) return 0;
  path.remove_prefix(kBelow.size());
  const auto id = checkpoint::ParseFolderName(path.substr(0, path.find('/')));
  return id ? id->step : 0;
}

}  // namespace

CrashPromises::CrashPromises(const LoggedRun& run, std::string without_sync)
    : run_(run), without_sync_(std::move(without_sync)), replay_(run.before) {}

std::string CrashPromises::FirstBroken(const std::set<size_t>& points, const std::string& scratch) {
  for (size_t at = 0; at < run_.operations.size(); ++at) {
    std::string broken = BrokenOrder(at);
    Promise(at);
    if (run_.operations[at].kind != Kind::kSync || run_.names[at] != without_sync_)
      replay_.Add(run_.operations[at]);
    if (broken.empty() && points.contains(at)) {
      for (const crash::Tree& left : replay_.Outcomes()) {
        if (!done_.emplace(promised_, left).second) continue;
        broken = BrokenBy(left, scratch);
        if (broken.empty()) continue;
        broken += "\nwhich left:\n" + crash::Describe(left);
        break;
      }
    }
    if (!broken.empty())
      return fmt::format("{}\nat operation {}, {}: {}", broken, at, run_.names[at],
                         crash::Describe(run_.operations[at]));
  }
  return "";
}

// What must be durable before this operation.
std::string CrashPromises::BrokenOrder(size_t at) const {
  const std::string& name = run_.names[at];
  const std::string& path = run_.operations[at].path;
  if (name == "make unfinished folder" && !replay_.IsDurable(std::string(kBelow) + "FENCE"))
    return "a folder is made before the fence is durable";
  const std::string runs = fmt::format("{}{}", kBelow, checkpoint::kRunListName);
  if (name == "rename fence" && replay_.Live().contains(runs) && !replay_.IsDurable(runs))
    return "the fence names a run before the list of runs is durable";
  const bool removes = name == "remove manifest";
  if (name != "create new manifest" && !removes) return "";
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  for (const auto& [file, content] : replay_.Live()) {
    if (content == nullptr) continue;
    const std::string role = RoleOfPath(file);
    // A removal is decided by all losses and labels of the directory.
    const bool needed =
        removes ? role == "evaluation" || role == "label"
                : file.starts_with(folder) && (role == "shard" || role == "rank manifest");
    if (needed && !replay_.IsDurable(file)) return file + " is not durable yet";
  }
  return "";
}

void CrashPromises::Promise(size_t at) {
  const crash::Operation& operation = run_.operations[at];
  if (operation.kind == Kind::kMark) {
    if (const int64_t step = MarkedStep(operation.path, "saved "); step > 0)
      promised_.surely.insert(step);
    if (const int64_t step = MarkedStep(operation.path, "tagged "); step > 0)
      promised_.tagged = step;
  }
  if (run_.names[at] == "remove manifest") promised_.surely.erase(StepOfPath(operation.path));
  if (run_.names[at] != "rename checkpoint") return;
  Files& files = saved_[StepOfPath(operation.to)];
  for (const auto& [path, content] : replay_.Live()) {
    if (content != nullptr && path.starts_with(operation.path + "/"))
      files[path.substr(operation.path.size() + 1)] = content;
  }
}

std::string CrashPromises::BrokenBy(const crash::Tree& left, const std::string& scratch) {
  crash::WriteTree(left, scratch);
  const std::string directory = DirectoryOn(scratch);
  const auto listed = checkpoint::ListCheckpoints(directory);
  if (!listed.ok()) return base::Message(listed.status());
  std::vector<int64_t> steps;
  for (const checkpoint::CheckpointId& id : *listed) {
    steps.push_back(id.step);
    found_.insert(id.step);
    if (std::string broken = BrokenStep(left, id.step); !broken.empty()) return broken;
  }
  for (const int64_t step : SavedSteps()) {
    if (std::ranges::find(steps, step) == steps.end()) missing_.insert(step);
  }
  for (const int64_t step : promised_.surely) {
    if (std::ranges::find(steps, step) == steps.end())
      return fmt::format("step {} was saved and is not there", step);
  }
  return BrokenLabels(directory, steps);
}

// Every byte is the one that was saved.
std::string CrashPromises::BrokenStep(const crash::Tree& left, int64_t step) const {
  const auto saved = saved_.find(step);
  if (saved == saved_.end()) return fmt::format("step {} was never saved", step);
  for (const auto& [file, content] : saved->second) {
    const auto found = left.find(FolderOf(step) + "/" + file);
    if (found == left.end()) return fmt::format("step {} lacks {}", step, file);
    if (found->second != content && *found->second != *content)
      return fmt::format("step {} has another {}", step, file);
  }
  return "";
}

std::string CrashPromises::BrokenLabels(const std::string& directory,
                                        const std::vector<int64_t>& steps) const {
  int64_t tagged = 0;
  for (const int64_t step : steps) {
    const std::string folder = base::JoinPath(directory, checkpoint::FolderName({step, kEpoch}));
    const auto evaluation = checkpoint::ReadEvaluation(folder);
    if (!evaluation.ok()) return base::Message(evaluation.status());
    if (!checkpoint::HasLabel(folder)) continue;
    const auto label = checkpoint::ReadLabel(folder);
    if (!label.ok()) return base::Message(label.status());
    if (step < promised_.tagged) return fmt::format("step {} has the tag again", step);
    tagged = step;
  }
  if (promised_.tagged > 0 && tagged == 0) return "the tag is gone";
  return "";
}

}  // namespace mt::train
