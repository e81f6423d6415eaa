// Conversion to and from JSON with nlohmann/json, and the geometry checks. Numbers come from files
// that may be damaged, so sums and products guard against overflow.
#include "worker/checkpoint/format/manifest.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "common/base/ids.h"
#include "worker/checkpoint/format/json_numbers.h"
#include "worker/checkpoint/format/json_text.h"
#include "worker/checkpoint/format/safetensors.h"

namespace mt::checkpoint {
namespace {

using nlohmann::json;

// So that sizes can be added without a thought of overflow.
constexpr int64_t kMaxTensorBytes = int64_t{1} << 50;

json ToJson(const TensorEntry& tensor) {
  json slices = json::array();
  for (const SliceEntry& slice : tensor.slices) {
    slices.push_back({{"file", slice.file},
                      {"tensor", slice.tensor},
                      {"offset", slice.offset},
                      {"shape", slice.shape},
                      {"xxh3_128", slice.digest}});
  }
  return {{"dtype", tensor.dtype}, {"shape", tensor.shape}, {"slices", std::move(slices)}};
}

TensorEntry ParseTensor(const json& in) {
  TensorEntry tensor{
      .dtype = in.at("dtype").get<std::string>(), .shape = Integers(in.at("shape")), .slices = {}};
  for (const json& slice : in.at("slices")) {
    tensor.slices.push_back({.file = slice.at("file").get<std::string>(),
                             .tensor = slice.at("tensor").get<std::string>(),
                             .offset = Integers(slice.at("offset")),
                             .shape = Integers(slice.at("shape")),
                             .digest = slice.at("xxh3_128").get<std::string>()});
  }
  return tensor;
}

Manifest ParseFields(const json& in) {
  Manifest m;
  m.step = Integer(in.at("step"));
  m.epoch = Integer(in.at("epoch"));
  m.created = in.at("created").get<std::string>();
  m.world_size = Integer(in.at("world_size"));
  m.job_uid = in.at("job").at("uid").get<std::string>();
  // Absent before fences.
  if (in.at("job").contains("epoch")) m.job_epoch = Integer(in.at("job").at("epoch"));
  m.job_name = in.at("job").at("name").get<std::string>();
  m.spec_json = in.at("job").at("spec").dump();
  if (in.contains("parent")) {
    m.parent_step = Integer(in.at("parent").at("step"));
    m.parent_epoch = Integer(in.at("parent").at("epoch"));
  }
  for (const auto& [name, value] : in.at("integers").items()) m.integers[name] = Integer(value);
  for (const auto& [name, value] : in.at("reals").items()) m.reals[name] = ParseReal(value);
  m.facts = in.at("facts").get<std::map<std::string, std::string>>();
  for (const auto& [key, tensor] : in.at("tensors").items()) {
    m.tensors.emplace(key, ParseTensor(tensor));
  }
  return m;
}

bool Overlap(const SliceEntry& a, const SliceEntry& b) {
  for (size_t d = 0; d < a.shape.size(); ++d) {
    if (a.offset[d] >= b.offset[d] + b.shape[d] || b.offset[d] >= a.offset[d] + a.shape[d]) {
      return false;
    }
  }
  return true;
}

Status CheckSlice(const std::string& key, const TensorEntry& tensor, const SliceEntry& slice) {
  const auto bad = [&](std::string_view why) {
    return base::DataLoss("tensor {}, slice in {}: {}", key, slice.file, why);
  };
  if (slice.shape.size() != tensor.shape.size() || slice.offset.size() != tensor.shape.size()) {
    return bad("another number of dimensions than the tensor");
  }
  for (size_t d = 0; d < slice.shape.size(); ++d) {
    // No sums here: the numbers are untrusted and could overflow.
    if (slice.offset[d] < 0 || slice.shape[d] < 0 || slice.offset[d] > tensor.shape[d] ||
        slice.shape[d] > tensor.shape[d] - slice.offset[d]) {
      return bad("reaches outside the tensor");
    }
  }
  if (slice.file.empty() || slice.file.find('/') != std::string::npos || slice.file == "..") {
    return bad("the file's name is not a plain name");
  }
  return OkStatus();
}

Status CheckTensor(const std::string& key, const TensorEntry& tensor) {
  int64_t elements = 1;
  for (const int64_t d : tensor.shape) {
    if (d < 0 || __builtin_mul_overflow(elements, d, &elements)) {
      return base::DataLoss("tensor {} has an impossible shape", key);
    }
  }
  const int64_t element = ElementSize(tensor.dtype);
  if (element == 0) return base::DataLoss("tensor {} has the unknown type {}", key, tensor.dtype);
  if (elements > kMaxTensorBytes / element)
    return base::DataLoss("tensor {} has an impossible shape", key);
  int64_t covered = 0;
  for (size_t i = 0; i < tensor.slices.size(); ++i) {
    RETURN_IF_ERROR(CheckSlice(key, tensor, tensor.slices[i]));
    covered += TensorBytes("U8", tensor.slices[i].shape);
    for (size_t j = 0; j < i; ++j) {
      if (Overlap(tensor.slices[i], tensor.slices[j])) {
        return base::DataLoss("tensor {}: slices {} and {} overlap", key, j, i);
      }
    }
  }
  if (covered != elements) {
    return base::DataLoss("tensor {}: slices hold {} of {} elements", key, covered, elements);
  }
  return OkStatus();
}

}  // namespace

std::string ToJson(const Manifest& m) {
  json out = {{"format", "megatrain-checkpoint"},
              {"version", kFormatVersion},
              {"step", m.step},
              {"epoch", m.epoch},
              {"created", m.created},
              {"world_size", m.world_size},
              {"job",
               {{"uid", m.job_uid},
                {"epoch", m.job_epoch},
                {"name", m.job_name},
                {"spec", json::parse(m.spec_json, nullptr, /*allow_exceptions=*/false)}}},
              {"integers", m.integers},
              {"reals", json::object()},
              {"facts", m.facts},
              {"tensors", json::object()}};
  if (m.parent_step >= 0) out["parent"] = {{"step", m.parent_step}, {"epoch", m.parent_epoch}};
  for (const auto& [name, value] : m.reals) out["reals"][name] = RealToJson(value);
  for (const auto& [key, tensor] : m.tensors) out["tensors"][key] = ToJson(tensor);
  return out.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

StatusOr<Manifest> ParseManifest(std::string_view text) {
  const json in = ParseJson(text);
  if (!in.is_object() || in.value("format", json()) != "megatrain-checkpoint") {
    return base::DataLoss(
        "not a checkpoint manifest: no JSON object with format \"megatrain-checkpoint\"");
  }
  try {
    const int64_t version = Integer(in.at("version"));
    if (version > kFormatVersion) {
      return base::FailedPrecondition(
          "the manifest has format version {}, this program reads up to {}: use a newer Megatrain",
          version, kFormatVersion);
    }
    Manifest manifest = ParseFields(in);
    RETURN_IF_ERROR(CheckCoverage(manifest));
    return manifest;
  } catch (const json::exception& error) {
    return base::DataLoss("damaged manifest: {}", error.what());
  }
}

std::string ManifestDigest(std::string_view text) { return "xxh3:" + base::Hash128Hex(text); }

Status CheckCoverage(const Manifest& manifest) {
  for (const auto& [key, tensor] : manifest.tensors) RETURN_IF_ERROR(CheckTensor(key, tensor));
  return OkStatus();
}

}  // namespace mt::checkpoint
