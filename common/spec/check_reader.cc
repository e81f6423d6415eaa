// Kinds generate and eval: a job of one rank that reads a checkpoint. What other kinds have besides
// is refused; what readers have is completed and checked here.
#include <algorithm>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include "common/spec/complete.h"
#include "common/spec/job_kind.h"
#include "common/spec/values.h"
#include "megatrain/v1/job.pb.h"

namespace mt::spec {
namespace {

namespace v1 = megatrain::v1;
using Field = pb::FieldDescriptor;

// A section of another kind, which is named; else what a reader has no use for.
std::string WhyForeign(const JobKind& kind, std::string_view path) {
  const std::string_view section = path.substr(0, path.find('.'));
  if (section == "generate" || section == "eval")
    return fmt::format("is for kind {}, and this job is of kind {}", section, kind.name);
  if (section == "read")
    return fmt::format("is for kinds generate and eval, and this job is of kind {}", kind.name);
  return fmt::format(
      "means nothing for kind {}, which reads a checkpoint on one rank; leave it out", kind.name);
}

void CheckPlace(const CheckArgs& args) {
  v1::JobSpec& job = *args.job;
  FaultList& faults = *args.faults;
  v1::Placement& placement = *job.mutable_placement();
  if (faults.Clean({"placement.slots"})) {
    if (placement.has_slots() && placement.slots() != 1)
      faults.Add("placement.slots", fmt::format("is {}, but a checkpoint is read by one rank; "
                                                "leave it out",
                                                placement.slots()));
    placement.set_slots(1);
  }
  v1::Checkpoint& checkpoint = *job.mutable_checkpoint();
  if (checkpoint.has_directory() && checkpoint.directory() != "none" &&
      faults.Clean({"checkpoint.directory"})) {
    faults.Add("checkpoint.directory",
               "a reader saves nothing; leave it out, and name what is read by read.checkpoint");
  }
  checkpoint.set_directory("none");
  if (!faults.Clean({"read.precision", "placement.device"})) return;
  const bool cpu_only =
      job.read().precision() == v1::Training::PRECISION_FP64 || !args.context.cuda;
  if (!placement.has_device() && cpu_only) placement.set_device(v1::Placement::DEVICE_CPU);
}

void CheckRead(const v1::Read& read, FaultList* faults) {
  if (read.has_step() && read.has_tag() && faults->Clean({"read.step", "read.tag"}))
    faults->Add("read.tag", "read.step names a checkpoint, too; keep one");
  if (read.has_tag() && read.tag().empty() && faults->Clean({"read.tag"}))
    faults->Add("read.tag", "is empty");
}

// All texts of a job are in memory until its end.
constexpr int64_t kMostTexts = 65'536;

void CheckTexts(const v1::Generate& generate, FaultList* faults) {
  const int64_t prompts = std::max(generate.prompts_size(), 1);
  const int64_t samples = generate.samples();
  if (prompts <= kMostTexts / std::max<int64_t>(samples, 1)) return;
  if (!faults->Clean({"generate.samples", "generate.prompts"})) return;
  faults->Add(samples > 1 ? "generate.samples" : "generate.prompts",
              fmt::format("{} texts ({} prompts, of each {}), and a job makes at most {}: ask for "
                          "fewer, or submit several jobs",
                          prompts * samples, prompts, samples, kMostTexts));
}

// As worker/decode/sampler.h has it, by field.
void CheckGenerate(const v1::JobSpec& job, FaultList* faults) {
  const v1::Generate& generate = job.generate();
  CheckTexts(generate, faults);
  for (const std::string& stop : generate.stops()) {
    if (!stop.empty() || !faults->Clean({"generate.stops"})) continue;
    faults->Add("generate.stops", "an empty text would end a sample at once");
  }
  if (generate.logprobs() && job.read().output() != v1::Read::OUTPUT_JSON &&
      faults->Clean({"generate.logprobs", "read.output"})) {
    faults->Add("generate.logprobs", "are a part of the JSON: set read.output to json");
  }
  if (generate.temperature() != 0 || !faults->Clean({"generate.temperature"})) return;
  if (generate.samples() > 1 && faults->Clean({"generate.samples"})) {
    faults->Add("generate.samples",
                fmt::format("{} samples without a temperature would be {} times the same: set "
                            "generate.temperature, such as 0.8",
                            generate.samples(), generate.samples()));
  }
  RefuseOtherThanDefault(generate, "generate", {"top_k", "top_p"},
                         "chooses among what is drawn, and nothing is without a temperature: set "
                         "generate.temperature, such as 0.8",
                         faults);
}

}  // namespace

void RefuseForeignFields(const CheckArgs& args) {
  const JobKind& kind = KindOf(*args.job);
  ForEachSetField(*args.job, "",
                  [&](const std::string& path, const pb::Message& /*message*/, const Field&) {
                    if (HasField(kind, path) || !args.faults->Clean({path})) return;
                    args.faults->Add(path, WhyForeign(kind, path));
                  });
}

void CompleteReader(const CheckArgs& args) {
  CheckPlace(args);
  CheckRead(args.job->read(), args.faults);
  if (KindOf(*args.job).decodes) CheckGenerate(*args.job, args.faults);
  CheckTokenizer(args);
  CheckReaderForDevice(args);
}

void CheckReaderForDevice(const CheckArgs& args) {
  const v1::JobSpec& job = *args.job;
  FaultList& faults = *args.faults;
  if (job.placement().device() != v1::Placement::DEVICE_GPU) return;
  if (job.read().precision() == v1::Training::PRECISION_FP64 && faults.Clean({"read.precision"}))
    faults.Add("read.precision", "fp64 runs on CPU slots only; use fp32 or bf16, or device cpu");
  RefuseThreadsOnGpu(args);
}

}  // namespace mt::spec
