// The parts of a line are joined by semicolons; what is not known is left out.
#include "client/commands/outlook.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/ranges.h>

#include "client/dev/dev_state.h"
#include "client/output/format.h"
#include "common/base/files.h"
#include "common/base/plain_text.h"
#include "common/spec/course.h"
#include "common/spec/derived.h"
#include "common/spec/job_kind.h"
#include "common/spec/print.h"
#include "common/spec/update.h"
#include "megatrain/v1/api.pb.h"
#include "worker/checkpoint/format/run_list.h"

namespace mt::client {
namespace {

// Of the run that the job before has trained: what it has saved, else what it went on from, as a
// job that had nothing to do. nullptr: none is known.
const v1::CheckpointInfo* NewestOf(const v1::Job& before) {
  const v1::CheckpointInfo& base = before.resumed_checkpoint();
  const bool goes_on = base.run() == before.run().id() && base.step() > 0;
  const v1::CheckpointInfo* newest = goes_on ? &base : nullptr;
  for (const v1::CheckpointInfo& one : before.checkpoints()) {
    if (one.run() != before.run().id()) continue;
    if (newest == nullptr || one.step() > newest->step()) newest = &one;
  }
  return newest;
}

// The checkpoint that the job goes on from, as far as its coordinator knows.
const v1::CheckpointInfo* BaseOf(const OutlookArgs& args) {
  if (args.before == nullptr || !GoesOnWith(*args.job, *args.before, args.restart)) return nullptr;
  return NewestOf(*args.before);
}

// A vocabulary may be known to ranks alone.
bool SameModel(const v1::JobSpec& job, const v1::JobSpec& other) {
  v1::JobSpec mine = job;
  v1::JobSpec theirs = other;
  mine.mutable_model()->clear_vocab_size();
  theirs.mutable_model()->clear_vocab_size();
  return spec::Digest(mine, "model") == spec::Digest(theirs, "model");
}

std::string TimeText(const OutlookArgs& args, int64_t tokens) {
  if (args.before == nullptr || tokens <= 0) return "";
  const double speed = args.before->last_step().tokens_per_second();
  if (speed <= 0 || !SameModel(*args.job, args.before->spec())) return "";
  return fmt::format("about {} at the {} tokens/s that job {} had on {} slot{}",
                     FormatDuration(static_cast<double>(tokens) / speed), FormatRate(speed),
                     args.before->name(), args.before->slots(),
                     args.before->slots() == 1 ? "" : "s");
}

std::string PassesText(const OutlookArgs& args) {
  if (args.job->data().mock()) return "";
  if (!args.passes) {
    return "passes over the data follow from their size: --data-root DIR tells them here, mtctl "
           "describe once it runs";
  }
  if (!args.passes->ok()) {
    return "passes over the data are not known here: " + base::Message(args.passes->status());
  }
  return FormatPasses((*args.passes)->train, (*args.passes)->valid);
}

// What the first placement decides is open until then.
std::string ChangesText(const OutlookArgs& args, const v1::CheckpointInfo& base) {
  std::vector<std::string> texts;
  for (const spec::FieldChange& change : spec::DifferencesOfJobs(args.before->spec(), *args.job)) {
    if (!change.after.empty() && change.after != "auto") texts.push_back(spec::ChangeText(change));
  }
  if (texts.empty()) return "";
  return fmt::format("differs from the checkpoint of step {} that it goes on from: {}", base.step(),
                     fmt::join(texts, "; "));
}

}  // namespace

bool SharesDirectory(const v1::JobSpec& job, const v1::Job& before) {
  const std::string& mine = job.checkpoint().directory();
  const std::string& other = before.spec().checkpoint().directory();
  if (mine == "none" || other.empty()) return false;
  const bool by_default = mine.empty() || mine == job.name();
  return mine == other || (by_default && other == before.namespace_() + "/" + job.name());
}

bool GoesOnWith(const v1::JobSpec& job, const v1::Job& before, bool restart) {
  if (restart || before.run().id().empty() || !SharesDirectory(job, before)) return false;
  const checkpoint::RunBeginning beginning = checkpoint::BeginningOf(spec::ToJson(job));
  return !beginning.named() || checkpoint::TextOf(beginning) == before.run().beginning();
}

std::vector<std::string> OutlookLines(const OutlookArgs& args) {
  if (!spec::KindOf(*args.job).saves) return {};
  const spec::Course course = spec::CourseOf(*args.job);
  const v1::CheckpointInfo* base = BaseOf(args);
  const int64_t done = base == nullptr ? 0 : std::min(base->step(), course.steps);
  const int64_t seq_length = args.job->model().seq_length();
  const int64_t ahead = (course.samples - course.ramp.SamplesAfter(done)) * seq_length;
  std::vector<std::string> parts = {fmt::format(
      "reads {} tokens in {} steps", FormatTokens(course.samples * seq_length), course.steps)};
  if (base != nullptr && ahead == 0) {
    parts[0] += ", all of them done: nothing is left to train, and --restart begins another run";
  } else if (base != nullptr) {
    parts[0] += fmt::format(", {} of them ahead", FormatTokens(ahead));
  }
  parts.push_back(PassesText(args));
  parts.push_back(TimeText(args, ahead));
  std::erase(parts, "");
  std::vector<std::string> lines = {fmt::format("{}", fmt::join(parts, "; "))};
  if (base != nullptr) lines.push_back(ChangesText(args, *base));
  std::erase(lines, "");
  return lines;
}

void AddDataRootFlag(CLI::App* command, std::string* data_root) {
  command->add_option("--data-root", *data_root,
                      "Folder here below which the data lie, to tell how often they are read");
}

std::optional<StatusOr<train::DataPasses>> PassesHere(const v1::JobSpec& job,
                                                      const std::string& data_root,
                                                      const GlobalOptions& options) {
  if (!spec::KindOf(job).has_steps) return std::nullopt;
  if (!data_root.empty()) return train::PassesOfJob(data_root, job);
  std::string source;
  if (!ResolveEndpoint(options, &source).ok() || source != DevEndpointFile()) return std::nullopt;
  const std::optional<DevState> dev =
      ReadDevState(base::JoinPath(StateFolder(), "dev/dev.json")).value_or(std::nullopt);
  if (!dev) return std::nullopt;
  return train::PassesOfJob(dev->settings.data_root, job);
}

void SayOutlook(const OutlookArgs& args) {
  for (const std::string& line : OutlookLines(args))
    std::fprintf(stderr, "mtctl: %s\n", base::CleanLine(line).c_str());
}

}  // namespace mt::client
