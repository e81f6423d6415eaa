// The persistent names: of tensors, of the scalars, and of the fields of an index record. A name
// that changes here makes older checkpoints unreadable.
#include "worker/train/run_state.h"

#include <charconv>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "worker/data/blend_plan.h"
#include "worker/params/state_parts.h"

namespace mt::train {
namespace {

using checkpoint::Manifest;
using kernels::Tensor;
using params::ParamId;
using params::ParamSpec;

std::vector<int64_t> ToVector(const kernels::Shape& shape) {
  std::vector<int64_t> dims;
  dims.reserve(static_cast<size_t>(shape.rank()));
  for (int i = 0; i < shape.rank(); ++i) dims.push_back(shape[i]);
  return dims;
}

// Calls fn(key, part of the logical tensor, its memory, padding between its elements included) for
// each state of what `which` says of this parameter.
template <class Fn>
void ForEachState(const params::ParamStore& store, ParamId id, params::PartsOf which,
                  const Fn& fn) {
  const std::string& name = store.registry()[id].name;
  // SGD has one moment and calls it by another name.
  const char* first = store.share().moments == 1 ? "momentum/" : "exp_avg/";
  for (const params::StatePart& part : params::StateParts(store, id, which)) {
    fn("weights/" + name, part, part.master);
    if (part.m) fn(first + name, part, part.m);
    if (part.v) fn("exp_avg_sq/" + name, part, part.v);
  }
}

std::vector<int64_t> OffsetOf(const params::StatePart& part) {
  std::vector<int64_t> offset(part.begin.begin(), part.begin.end());
  offset.resize(static_cast<size_t>(part.shape.rank()));
  return offset;
}

std::vector<ParamId> AllParams(const params::Registry& registry) {
  std::vector<ParamId> ids;
  ids.reserve(static_cast<size_t>(registry.size()));
  for (int32_t i = 0; i < static_cast<int32_t>(registry.size()); ++i) ids.push_back(ParamId{i});
  return ids;
}

// Calls fn(name, member) for each member of the block; names are persistent.
template <class Scalars, class Fn>
void ForEachScalar(Scalars& s, const Fn& fn) {
  fn("consumed_samples", s.consumed_samples);
  fn("schedule_samples", s.schedule_samples);
  fn("adam_step", s.adam_step);
  fn("lr", s.lr);
  fn("weight_decay", s.weight_decay);
  fn("bias_correction1", s.bias_correction1);
  fn("bias_correction2", s.bias_correction2);
  fn("loss_scale", s.loss_scale);
  fn("clean_steps", s.clean_steps);
  fn("hysteresis", s.hysteresis);
  fn("factor", s.factor);
  fn("grad_norm", s.grad_norm);
  fn("skip", s.skip);
  fn("skipped_steps", s.skipped_steps);
}

void Put(Manifest* manifest, const char* name, int64_t value) { manifest->integers[name] = value; }
void Put(Manifest* manifest, const char* name, double value) { manifest->reals[name] = value; }

// Copies the number of this name; false where there is none.
template <class Numbers, class Value>
bool Take(const Numbers& numbers, const char* name, Value* value) {
  const auto found = numbers.find(name);
  if (found == numbers.end()) return false;
  *value = found->second;
  return true;
}
bool Get(const Manifest& manifest, const char* name, int64_t* value) {
  return Take(manifest.integers, name, value);
}
bool Get(const Manifest& manifest, const char* name, double* value) {
  return Take(manifest.reals, name, value);
}

// Calls fn(name, member) for each field of the record; text and integers.
template <class Record, class Fn>
void ForEachField(Record& r, const Fn& fn) {
  fn("source", r.source);
  fn("samples_asked", r.samples_asked);
  fn("epochs", r.epochs);
  fn("separate_last_epoch", r.separate_last_epoch);
  fn("seed", r.seed);
  fn("seq_length", r.seq_length);
  fn("split", r.split);
  fn("samples_built", r.samples_built);
  fn("idx_digest", r.idx_digest);
  fn("bin_digest", r.bin_digest);
}
// In older checkpoints.
constexpr std::string_view kMayBeAbsent = "bin_digest";
// Of a blend alone: its weights, and how many data sets it has, whose records have numbers behind
// the split's name.
constexpr char kWeights[] = "weights";
constexpr char kMembers[] = "members";

std::string ToText(const std::string& value) { return value; }
std::string ToText(int64_t value) { return std::to_string(value); }
std::string ToText(bool value) { return value ? "true" : "false"; }

bool FromText(const std::string& text, std::string* value) {
  *value = text;
  return true;
}
bool FromText(const std::string& text, int64_t* value) {
  const auto end = std::from_chars(text.data(), text.data() + text.size(), *value);
  return end.ec == std::errc() && end.ptr == text.data() + text.size();
}
bool FromText(const std::string& text, bool* value) {
  *value = text == "true";
  return text == "true" || text == "false";
}

std::string FactName(const std::string& split_name, const char* field) {
  return "data." + split_name + "." + field;
}

}  // namespace

std::vector<checkpoint::SliceToSave> SlicesToSave(const params::ParamStore& store,
                                                  std::span<const parallel::BucketRoute> routes) {
  std::vector<checkpoint::SliceToSave> slices;
  for (const ParamId id : AllParams(store.registry())) {
    if (!routes[static_cast<size_t>(store.layout().BucketOf(id))].counted) continue;
    const ParamSpec& spec = store.registry()[id];
    ForEachState(store, id, params::PartsOf::kOwnSlices,
                 [&](std::string key, const params::StatePart& part, const Tensor& memory) {
                   slices.push_back({.key = std::move(key),
                                     .dtype = memory.dtype,
                                     .global_shape = ToVector(spec.shape),
                                     .offset = OffsetOf(part),
                                     .shape = ToVector(part.shape),
                                     .data = memory.data,
                                     .places = part.places,
                                     .by_columns = spec.by_columns});
                 });
  }
  return slices;
}

std::vector<checkpoint::SliceToLoad> SlicesToLoad(const params::ParamStore& store) {
  std::vector<checkpoint::SliceToLoad> slices;
  for (const ParamId id : AllParams(store.registry())) {
    const ParamSpec& spec = store.registry()[id];
    ForEachState(store, id, params::PartsOf::kUpdatedState,
                 [&](std::string key, const params::StatePart& part, const Tensor& memory) {
                   slices.push_back({.key = std::move(key),
                                     .dtype = memory.dtype,
                                     .global_shape = ToVector(spec.shape),
                                     .offset = OffsetOf(part),
                                     .shape = ToVector(part.shape),
                                     .data = memory.data,
                                     .places = part.places});
                 });
  }
  return slices;
}

void PutScalars(const kernels::StepScalars& scalars, Manifest* manifest) {
  ForEachScalar(scalars, [&](const char* name, const auto& value) { Put(manifest, name, value); });
}

StatusOr<kernels::StepScalars> GetScalars(const Manifest& manifest) {
  kernels::StepScalars scalars;
  std::string missing;
  ForEachScalar(scalars, [&](const char* name, auto& value) {
    if (!Get(manifest, name, &value)) missing = name;
  });
  if (missing.empty()) return scalars;
  return base::DataLoss("the manifest of step {} has no number \"{}\"", manifest.step, missing);
}

namespace {

// `name`: of the split, or of a data set of a blend.
void PutRecord(const data::IndexRecord& record, const std::string& name, Manifest* manifest) {
  ForEachField(record, [&](const char* field, const auto& value) {
    manifest->facts[FactName(name, field)] = ToText(value);
  });
  if (record.members.empty()) return;
  manifest->facts[FactName(name, kWeights)] = record.weights;
  manifest->facts[FactName(name, kMembers)] = std::to_string(record.members.size());
  for (size_t i = 0; i < record.members.size(); ++i)
    PutRecord(record.members[i], fmt::format("{}.{}", name, i), manifest);
}

StatusOr<data::IndexRecord> GetRecord(const Manifest& manifest, const std::string& name) {
  data::IndexRecord record;
  std::string missing;
  ForEachField(record, [&](const char* field, auto& value) {
    const auto found = manifest.facts.find(FactName(name, field));
    const bool absent = found == manifest.facts.end();
    if (absent && kMayBeAbsent == field) return;
    if (absent || !FromText(found->second, &value)) missing = field;
  });
  const auto members = manifest.facts.find(FactName(name, kMembers));
  int64_t count = 0;
  if (members != manifest.facts.end()) {
    const auto weights = manifest.facts.find(FactName(name, kWeights));
    const bool known = FromText(members->second, &count) && count >= 0 &&
                       count <= data::kMaxBlendMembers && weights != manifest.facts.end();
    if (known)
      record.weights = weights->second;
    else
      missing = kMembers;
  }
  if (!missing.empty()) {
    return base::DataLoss("the manifest of step {} has no fact \"{}\"", manifest.step,
                          FactName(name, missing.c_str()));
  }
  for (int64_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(data::IndexRecord member, GetRecord(manifest, fmt::format("{}.{}", name, i)));
    record.members.push_back(std::move(member));
  }
  return record;
}

}  // namespace

void PutIndexRecord(const data::IndexRecord& record, Manifest* manifest) {
  PutRecord(record, record.split_name, manifest);
}

void PutConsumed(std::string_view split_name, const std::vector<int64_t>& by_member,
                 Manifest* manifest) {
  if (by_member.empty()) return;
  manifest->facts[FactName(std::string(split_name), "consumed")] =
      fmt::format("{}", fmt::join(by_member, ","));
}

StatusOr<data::IndexRecord> GetIndexRecord(const Manifest& manifest,
                                           const std::string& split_name) {
  ASSIGN_OR_RETURN(data::IndexRecord record, GetRecord(manifest, split_name));
  record.split_name = split_name;
  for (data::IndexRecord& member : record.members) member.split_name = split_name;
  return record;
}

}  // namespace mt::train
