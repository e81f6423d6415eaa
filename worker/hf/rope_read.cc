// Old files have rope_theta (GPT-NeoX: rotary_emb_base, rotary_pct) at top level and rope_scaling
// beside it; transformers 5 writes rope_parameters with all of it.
#include "worker/hf/rope_read.h"

#include <string>

namespace mt::hf {
namespace {

using nlohmann::json;

constexpr int64_t kMostPositions = 16777216;

// The names at top level that count in the family.
const char* BaseName(Family family) {
  return family == Family::kGptNeox ? "rotary_emb_base" : "rope_theta";
}

bool IsDict(const json& object, const char* name) {
  const auto it = object.find(name);
  return it != object.end() && it->is_object() && !it->empty();
}

// The dict that counts; null: there is none.
const json* Winner(const json& object, ConfigFields* fields) {
  for (const char* const name : {"rope_scaling", "rope_parameters"}) {
    const auto it = object.find(name);
    if (it != object.end() && !it->is_null() && !it->is_object())
      fields->Fault(name, "is no object");
  }
  const bool old_form = IsDict(object, "rope_scaling"),
             new_form = IsDict(object, "rope_parameters");
  if (old_form && new_form && object["rope_scaling"] != object["rope_parameters"]) {
    fields->Refuse(fmt::format(
        "rope_scaling is {} and rope_parameters is {}: readers take the one or the other; keep the "
        "one that is meant",
        Shown(object["rope_scaling"]), Shown(object["rope_parameters"])));
  }
  if (old_form) return &object["rope_scaling"];
  return new_form ? &object["rope_parameters"] : nullptr;
}

// A number that may stand in the dict or at top level; where both have it they must agree.
double InEither(const json* dict, const json& object, const std::string& in_dict,
                const std::string& at_top, double missing, ConfigFields* fields) {
  const bool has_dict = dict != nullptr && dict->contains(in_dict) && !dict->at(in_dict).is_null();
  const double top = fields->Has(at_top) ? fields->Real(object.at(at_top), at_top) : missing;
  if (!has_dict) return top;
  const double value = fields->Real(dict->at(in_dict), in_dict);
  if (fields->Has(at_top) && value != top) {
    fields->Refuse(fmt::format(
        "{} is {} in rope's dict and {} is {} at top level: readers take the one or the other; "
        "keep the one that is meant",
        in_dict, value, at_top, top));
  }
  return value;
}

// A number above 0 of the dict, which must be there.
double InDict(const json& dict, const std::string& name, ConfigFields* fields) {
  if (dict.contains(name)) return fields->Real(dict.at(name), "rope's " + name);
  fields->Fault("rope's " + name, "is missing");
  return 1;
}

int64_t OriginalPositions(const json& dict, ConfigFields* fields) {
  const std::string name = "original_max_position_embeddings";
  const int64_t value =
      dict.contains(name) && dict.at(name).is_number_integer() ? dict.at(name).get<int64_t>() : 0;
  if (value >= 1 && value <= kMostPositions) return value;
  fields->Fault("rope's " + name, fmt::format("is no integer from 1 to {}", kMostPositions));
  return 1;
}

void ReadScaling(const json& dict, RopeFields* rope, ConfigFields* fields) {
  const char* const name = dict.contains("rope_type") ? "rope_type" : "type";
  if (!dict.contains(name)) return;
  const json& named = dict.at(name);
  const std::string type = named.is_string() ? named.get<std::string>() : "";
  if (type == "default") return;
  if (type == "linear") {
    rope->linear = true;
    rope->factor = InDict(dict, "factor", fields);
    return;
  }
  if (type == "llama3") {
    rope->llama3 = true;
    rope->factor = InDict(dict, "factor", fields);
    rope->low_freq_factor = InDict(dict, "low_freq_factor", fields);
    rope->high_freq_factor = InDict(dict, "high_freq_factor", fields);
    rope->original_positions = OriginalPositions(dict, fields);
    return;
  }
  fields->Refuse(
      fmt::format("{} {} of rope is not built: default, linear, llama3 are", name, Shown(named)));
}

}  // namespace

RopeFields ReadRope(Family family, const json& object, ConfigFields* fields) {
  RopeFields rope;
  const json* const dict = Winner(object, fields);
  if (dict != nullptr) {
    for (const auto& [name, value] : dict->items()) {
      if (!value.is_object()) continue;
      fields->Refuse(fmt::format("rope by kinds of layers (\"{}\") is not built", name));
      return rope;
    }
  }
  rope.base = InEither(dict, object, "rope_theta", BaseName(family), 10000, fields);
  if (family == Family::kGptNeox) {
    rope.percent = InEither(dict, object, "partial_rotary_factor", "rotary_pct", 0.25, fields);
    if (rope.percent > 1) fields->Fault("partial_rotary_factor", "is above 1");
  } else if (dict != nullptr && dict->value("partial_rotary_factor", json(1.0)) != json(1.0)) {
    fields->Refuse(fmt::format("partial_rotary_factor {} is not what {} computes",
                               Shown(dict->at("partial_rotary_factor")), ModelType(family)));
  }
  if (dict != nullptr) ReadScaling(*dict, &rope, fields);
  return rope;
}

}  // namespace mt::hf
