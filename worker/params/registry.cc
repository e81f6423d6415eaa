// The checks behind Registry::Add, and the geometry of padded blocks (Held, Places). Parameters are
// found by the 64-bit hash of their name, which also keys their initial values, so a collision is a
// bug that is caught here.
#include "worker/params/registry.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/base/ids.h"

namespace mt::params {
namespace {

// True if `stored` consists of whole padded units.
bool AreWhole(const PaddedUnits& units, const kernels::Shape& stored) {
  if (units.dim < 0 || units.dim >= stored.rank()) return false;
  if (units.size <= 0 || units.stored < units.size) return false;
  return stored[units.dim] % units.stored == 0;
}

// True if the stored block lies within the logical tensor, apart from padding (rows behind its end,
// or padded units).
bool IsPart(const ParamSpec& spec) {
  if (spec.shape.rank() != spec.stored.rank() || spec.shape.rank() < 1) return false;
  if (spec.begin[0] < 0 || spec.begin[1] < 0) return false;
  if (spec.units && !AreWhole(*spec.units, spec.stored)) return false;
  const kernels::Shape held = spec.Held();
  if (spec.units && spec.begin[0] + held[0] > spec.shape[0]) return false;
  return spec.shape.rank() == 1 || spec.begin[1] + held[1] <= spec.shape[1];
}

// True if `next` can follow `previous` as further rows of one tensor.
bool CanJoin(const ParamSpec& previous, const ParamSpec& next) {
  if (previous.region != next.region || previous.layer != next.layer) return false;
  if (previous.chunk != next.chunk || previous.partial != next.partial) return false;
  if (previous.copy != next.copy) return false;
  if (previous.decay != next.decay || previous.stored.rank() != next.stored.rank()) return false;
  return next.stored.rank() == 1 || previous.stored[1] == next.stored[1];
}

}  // namespace

bool DecaysByMegatronRule(std::string_view name, const kernels::Shape& shape) {
  return shape.rank() > 1 && !name.ends_with(".bias");
}

kernels::Shape ParamSpec::Held() const {
  if (units) {
    const int64_t size = stored[units->dim] / units->stored * units->size;
    if (stored.rank() == 1) return {size};
    return units->dim == 0 ? kernels::Shape{size, stored[1]} : kernels::Shape{stored[0], size};
  }
  const int64_t rows = std::clamp<int64_t>(shape[0] - begin[0], 0, stored[0]);
  return stored.rank() == 1 ? kernels::Shape{rows} : kernels::Shape{rows, stored[1]};
}

base::Runs ParamSpec::Places() const {
  if (!units) return {};
  // Number of stored elements per row (units of rows) or per column (units of columns).
  const int64_t inner = units->dim + 1 < stored.rank() ? stored[1] : 1;
  return {.length = units->size * inner, .stride = units->stored * inner};
}

ParamId Registry::Add(ParamSpec spec) {
  if (chunk_) spec.chunk = *chunk_;
  CHECK(spec.shape.rank() <= 2) << spec.name << ": parameters are vectors or matrices";
  CHECK(IsPart(spec)) << spec.name;
  CHECK(spec.by_columns || spec.shape.rank() == 1 || spec.Held()[1] == spec.shape[1])
      << spec.name << " is not sharded by columns";
  CHECK(spec.shape.NumElements() > 0) << spec.name << " has no elements";
  CHECK(spec.init != InitKind::kNormal || spec.std >= 0) << spec.name;
  CHECK(spec.init != InitKind::kOne || !spec.units) << spec.name << ": padding is zero";
  if (spec.joined) {
    CHECK(!params_.empty() && CanJoin(params_.back(), spec))
        << spec.name << " cannot be joined to the parameter before it";
  }
  const ParamId id{static_cast<int32_t>(params_.size())};
  const auto [found, inserted] = by_hash_.emplace(base::Hash64(spec.name), id);
  CHECK(inserted) << spec.name << " and " << (*this)[found->second].name << " have the same hash";
  params_.push_back(std::move(spec));
  return id;
}

const ParamSpec& Registry::operator[](ParamId id) const {
  const auto index = static_cast<size_t>(id);
  CHECK_LT(index, params_.size());
  return params_[index];
}

std::optional<ParamId> Registry::Find(std::string_view name) const {
  const auto found = by_hash_.find(base::Hash64(name));
  if (found == by_hash_.end() || (*this)[found->second].name != name) return std::nullopt;
  return found->second;
}

int64_t Registry::NumElements() const {
  int64_t n = 0;
  for (const ParamSpec& spec : params_) n += spec.shape.NumElements();
  return n;
}

}  // namespace mt::params
