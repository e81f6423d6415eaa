// A line for each question that somebody who comes back has.
#include "client/output/summary.h"

#include <fmt/format.h>

#include "client/output/event_digest.h"
#include "client/output/format.h"
#include "common/base/plain_text.h"
#include "megatrain/v1/api.pb.h"

namespace mt::client {
namespace {

std::string Since(const Style& style, int64_t micros) {
  if (style.time != TimeFormat::kRelative) return TimeCell(style, micros);
  return TimeCell(style, micros) + " ago";
}

std::string FirstLine(const v1::Job& job, const Style& style) {
  std::string line = fmt::format("job {}: {}", job.name(),
                                 Paint(style, ToneOfState(StateText(job)), StateText(job)));
  if (job.created_us() != 0) line += ", submitted " + Since(style, job.created_us());
  if (job.started_us() != 0) line += ", first step " + Since(style, job.started_us());
  if (job.finished_us() != 0) line += ", ended " + Since(style, job.finished_us());
  if (!job.message().empty()) line += ": " + base::CleanLine(job.message());
  return line + "\n";
}

}  // namespace

std::string ProgressText(const v1::Job& job) {
  const v1::StepRecord& step = job.last_step();
  if (step.step() <= 0) return "";
  std::string text = fmt::format("step {}", step.step());
  if (job.total_steps() > 0) text += fmt::format(" of {}", job.total_steps());
  text += fmt::format(", loss {:.4f}", step.loss());
  if (job.first_step().step() > 0) text += fmt::format(" (first {:.4f})", job.first_step().loss());
  return text + fmt::format(", {} tokens/s", FormatRate(step.tokens_per_second()));
}

std::string CheckpointAgeText(const v1::Job& job, const Style& style) {
  const v1::CheckpointInfo& saved = job.last_checkpoint();
  if (saved.step() <= 0) return "";
  const std::string when = saved.time_us() > 0 ? ", " + Since(style, saved.time_us()) : "";
  return fmt::format("step {}{}, {}", saved.step(), when, FormatBytes(saved.bytes()));
}

std::string JobSummary(const v1::Job& job, const v1::EventsChunk& events, const TableArgs& args) {
  std::string out = FirstLine(job, args.style);
  const auto add = [&](const char* what, const std::string& text) {
    if (!text.empty()) out += fmt::format("{}{}\n", what, base::CleanLine(text));
  };
  add("", ProgressText(job));
  if (job.has_last_eval()) {
    add("validation loss ", fmt::format("{:.4f} at step {}{}", job.last_eval().loss(),
                                        job.last_eval().step(), LossUnitsText(job.last_eval())));
  }
  add("last checkpoint: ", CheckpointAgeText(job, args.style));
  add("last save FAILED: ", job.last_checkpoint_error());
  for (const v1::Condition& condition : job.conditions())
    add("", condition.type() + ": " + condition.message());
  const std::string digest = EventDigest(events, {}, args);
  if (!digest.empty()) out += "what happened last:\n" + digest;
  return out;
}

}  // namespace mt::client
