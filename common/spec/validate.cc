// The order of the passes, defaults from job.proto, and what the first placement decides.
#include "common/spec/validate.h"

#include <algorithm>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include "common/base/math.h"
#include "common/spec/complete.h"
#include "common/spec/job_kind.h"
#include "common/spec/values.h"
#include "megatrain/v1/job.pb.h"
#include "megatrain/v1/options.pb.h"

namespace mt::spec {
namespace {

namespace v1 = megatrain::v1;
using Field = pb::FieldDescriptor;

// Sections are created on the way, so that generated accessors return the defaults.
void ApplyDefaults(const JobKind& kind, const std::string& prefix, pb::Message* message) {
  const pb::Descriptor& type = *message->GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const Field& field = *type.field(i);
    const std::string path = Under(prefix, field.name());
    if (!HasField(kind, path)) continue;
    if (IsSection(field)) {
      if (RuleOf(field).since() == v1::FEATURE_LATER) continue;
      ApplyDefaults(kind, path, message->GetReflection()->MutableMessage(message, &field));
    } else if (!IsSet(*message, field) && !RuleOf(field).default_().empty() &&
               !DefaultsToAuto(field)) {
      const std::string complaint = SetFromText(field, RuleOf(field).default_(), message);
      CHECK(complaint.empty()) << field.full_name() << ": " << complaint;
    }
  }
}

void CheckRequired(const JobKind& kind, const pb::Message& message, const std::string& prefix,
                   FaultList* faults) {
  const pb::Descriptor& type = *message.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const Field& field = *type.field(i);
    const std::string path = Under(prefix, field.name());
    if (!HasField(kind, path)) continue;
    if (IsSection(field)) {
      CheckRequired(kind, message.GetReflection()->GetMessage(message, &field), path, faults);
    } else if (RuleOf(field).required() && !IsSet(message, field) && faults->Clean({path})) {
      faults->Add(path, "required: " + RuleOf(field).help());
    }
  }
}

// What a job that trains has by its device.
void ResolveTraining(const CheckArgs& args) {
  const bool gpu = args.job->placement().device() == v1::Placement::DEVICE_GPU;
  CheckForDevice(args);
  v1::Training& training = *args.job->mutable_training();
  if (!training.has_precision())
    training.set_precision(gpu ? v1::Training::PRECISION_BF16 : v1::Training::PRECISION_FP32);
  CompleteZeroStage(gpu, args.job);
}

}  // namespace

std::string NearestMultiples(int64_t value, int64_t unit) {
  const int64_t below = value / unit * unit;
  if (below <= 0) return fmt::format("{}", unit);
  return fmt::format("{} or {}", below, below + unit);
}

std::string NearestDivisors(int64_t value, int64_t whole) {
  int64_t below = value - 1;
  while (below > 0 && whole % below != 0) --below;
  int64_t above = value + 1;
  while (above <= whole && whole % above != 0) ++above;
  if (above > whole) return fmt::format("{}", std::max<int64_t>(below, 1));
  return below > 0 ? fmt::format("{} or {}", below, above) : fmt::format("{}", above);
}

void RefuseOtherThanDefault(const pb::Message& section, std::string_view path,
                            std::initializer_list<std::string_view> names, std::string_view why,
                            FaultList* faults) {
  for (const std::string_view name : names) {
    const Field& field = *section.GetDescriptor()->FindFieldByName(std::string(name));
    const std::string at = Under(path, name);
    if (!IsSet(section, field) || !faults->Clean({at})) continue;
    const std::string text = TextOf(section, field);
    if (text != DefaultText(field)) faults->Add(at, fmt::format("{} {}", text, why));
  }
}

Faults CompleteAfter(Faults faults, const ValidateContext& context, v1::JobSpec* job) {
  FaultList list(std::move(faults));
  const CheckArgs args{.context = context, .job = job, .faults = &list};
  CheckRules(args);
  RefuseForeignFields(args);
  const JobKind& kind = KindOf(*job);
  if (!kind.reads) FillFromPreset(args);
  ApplyDefaults(kind, "", job);
  if (kind.reads) {
    CheckRequired(kind, *job, "", &list);
    CompleteReader(args);
    return list.Take();
  }
  CompleteBench(args);
  CompleteModel(args);
  CheckRequired(kind, *job, "", &list);
  CheckData(args);
  CompleteLayout(args);
  CompletePipeline(args);
  CompleteDevice(args);
  CompleteBatch(args);
  CompleteTraining(args);
  return list.Take();
}

Faults CompleteJob(const ValidateContext& context, v1::JobSpec* job) {
  return CompleteAfter({}, context, job);
}

Faults ResolveForSlots(const SlotFacts& facts, v1::JobSpec* job, const ValidateContext& context) {
  FaultList faults;
  v1::Placement& placement = *job->mutable_placement();
  const v1::Placement::Device kind =
      facts.gpu ? v1::Placement::DEVICE_GPU : v1::Placement::DEVICE_CPU;
  if (placement.has_device() && placement.device() != kind) {
    faults.Add("placement.device",
               fmt::format("the job asks for {} slots, the node has {} slots",
                           facts.gpu ? "cpu" : "gpu", facts.gpu ? "gpu" : "cpu"));
    return faults.Take();
  }
  placement.set_device(kind);
  const CheckArgs args{.context = context, .job = job, .faults = &faults};
  if (KindOf(*job).reads) {
    CheckReaderForDevice(args);
  } else {
    ResolveTraining(args);
  }
  if (!facts.gpu && !placement.has_threads_per_rank()) {
    const int64_t threads = facts.cores_per_node / std::max<int64_t>(1, facts.slots_per_node);
    placement.set_threads_per_rank(std::clamp<int64_t>(threads, 1, 1024));
  }
  return faults.Take();
}

}  // namespace mt::spec
