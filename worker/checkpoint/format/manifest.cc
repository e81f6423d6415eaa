// Conversion to and from JSON with nlohmann/json. Ranks and tensors are many, so that they have a
// line each and are written without a tree in between.
#include "worker/checkpoint/format/manifest.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "worker/checkpoint/format/json_numbers.h"
#include "worker/checkpoint/format/json_text.h"

namespace mt::checkpoint {
namespace {

using nlohmann::json;

// More would be one block for every slice all the same.
constexpr int64_t kLargestBlockBytes = int64_t{1} << 40;

std::string Quoted(std::string_view text) {
  return json(text).dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string RankLine(const RankEntry& rank) {
  std::string out = fmt::format(
      R"({{"manifest": {}, "file": {}, "bytes": {}, "xxh3_128": "{}", "slices": {}, "tensors": [)",
      Quoted(rank.manifest), Quoted(rank.file), rank.bytes, base::HexOf(rank.digest),
      rank.num_slices);
  for (const auto& [first, last] : rank.tensors)
    fmt::format_to(std::back_inserter(out), "[{}, {}], ", first, last);
  if (!rank.tensors.empty()) out.resize(out.size() - 2);
  return out + "]}";
}

// Appends `,\n "name": <open>` and the lines, one for each item.
template <class Items, class Line>
void AppendLines(std::string_view name, std::string_view brackets, const Items& items,
                 const Line& line, std::string* out) {
  fmt::format_to(std::back_inserter(*out), ",\n \"{}\": {}", name, brackets[0]);
  std::string_view separator = "\n  ";
  for (const auto& item : items) {
    *out += separator;
    *out += line(item);
    separator = ",\n  ";
  }
  *out += items.empty() ? "" : "\n ";
  *out += brackets[1];
}

// Slices as in version 1, each with one digest.
TensorEntry ParseTensor(const json& in, bool with_slices) {
  TensorEntry tensor{
      .dtype = in.at("dtype").get<std::string>(), .shape = Integers(in.at("shape")), .slices = {}};
  if (!with_slices) return tensor;
  for (const json& slice : in.at("slices")) {
    SliceEntry& entry = tensor.slices.emplace_back();
    entry.file = slice.at("file").get<std::string>();
    entry.tensor = slice.at("tensor").get<std::string>();
    entry.offset = Integers(slice.at("offset"));
    entry.shape = Integers(slice.at("shape"));
    const auto digest = base::ParseHash128(slice.at("xxh3_128").get_ref<const std::string&>());
    if (digest) entry.digests.push_back(*digest);  // else a count that CheckTensor refuses
  }
  return tensor;
}

StatusOr<RankEntry> ParseRank(const json& in, int64_t num_tensors) {
  RankEntry rank{.manifest = in.at("manifest").get<std::string>(),
                 .file = in.at("file").get<std::string>(),
                 .bytes = Integer(in.at("bytes")),
                 .digest = {},
                 .num_slices = Integer(in.at("slices")),
                 .tensors = {}};
  const auto digest = base::ParseHash128(in.at("xxh3_128").get_ref<const std::string&>());
  if (!digest || !IsPlainName(rank.manifest) || !IsPlainName(rank.file))
    return base::DataLoss("rank {}: no digest, or no plain names of files", rank.manifest);
  rank.digest = *digest;
  int64_t next = 0;
  for (const json& range : in.at("tensors")) {
    const int64_t first = Integer(range.at(0)), last = Integer(range.at(1));
    if (first < next || last < first || last >= num_tensors)
      return base::DataLoss("rank {}: impossible range of tensors [{}, {}]", rank.manifest, first,
                            last);
    rank.tensors.emplace_back(first, last);
    next = last + 1;
  }
  return rank;
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
  if (in.contains("skipped_since_save"))
    m.skipped_since_save = Integer(in.at("skipped_since_save"));
  if (in.contains("spoiled")) m.spoiled = in.at("spoiled").get<bool>();
  if (in.contains("run")) m.run = in.at("run").get<std::string>();
  for (const auto& [name, value] : in.at("integers").items()) m.integers[name] = Integer(value);
  for (const auto& [name, value] : in.at("reals").items()) m.reals[name] = ParseReal(value);
  m.facts = in.at("facts").get<std::map<std::string, std::string>>();
  return m;
}

// Each tensor that has elements is among those of some rank.
Status CheckRanksHaveAll(const Manifest& manifest) {
  std::vector<int64_t> begins(manifest.tensors.size() + 1);  // of ranges, less those that end
  for (const RankEntry& rank : manifest.ranks) {
    for (const auto& [first, last] : rank.tensors) {
      ++begins[static_cast<size_t>(first)];
      --begins[static_cast<size_t>(last) + 1];
    }
  }
  int64_t ranks = 0;
  size_t ordinal = 0;
  for (const auto& [key, tensor] : manifest.tensors) {
    ranks += begins[ordinal++];
    if (ranks == 0 && CountElements(tensor.shape) > 0)
      return base::DataLoss("tensor {}: no rank has slices of it", key);
  }
  return OkStatus();
}

Status CheckTensors(const Manifest& manifest) {
  for (const auto& [key, tensor] : manifest.tensors)
    RETURN_IF_ERROR(CheckTensor(key, tensor, manifest.block_bytes));
  return OkStatus();
}

// What describes tensors: in version 1 with their slices.
Status ParseTensors(const json& in, int64_t version, Manifest* manifest) {
  for (const auto& [key, tensor] : in.at("tensors").items())
    manifest->tensors.emplace(key, ParseTensor(tensor, version == 1));
  if (version == 1) {
    manifest->block_bytes = kWholeSliceBlock;
    return CheckCoverage(*manifest);
  }
  manifest->block_bytes = Integer(in.at("block_bytes"));
  if (manifest->block_bytes < 1 || manifest->block_bytes > kLargestBlockBytes)
    return base::DataLoss("impossible blocks of {} bytes", manifest->block_bytes);
  RETURN_IF_ERROR(CheckTensors(*manifest));
  for (const json& rank : in.at("ranks").get_ref<const json::array_t&>()) {
    ASSIGN_OR_RETURN(RankEntry entry, ParseRank(rank, std::ssize(manifest->tensors)));
    manifest->ranks.push_back(std::move(entry));
  }
  return CheckRanksHaveAll(*manifest);
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
              {"block_bytes", m.block_bytes}};
  if (m.parent_step >= 0) out["parent"] = {{"step", m.parent_step}, {"epoch", m.parent_epoch}};
  if (!m.run.empty()) out["run"] = m.run;
  if (m.skipped_since_save > 0) out["skipped_since_save"] = m.skipped_since_save;
  if (m.spoiled) out["spoiled"] = true;
  for (const auto& [name, value] : m.reals) out["reals"][name] = RealToJson(value);
  std::string text = out.dump(1, ' ', false, json::error_handler_t::replace);
  text.resize(text.size() - 2);  // "\n}"
  AppendLines("ranks", "[]", m.ranks, RankLine, &text);
  AppendLines(
      "tensors", "{}", m.tensors,
      [](const auto& tensor) {
        return fmt::format(R"({}: {{"dtype": {}, "shape": [{}]}})", Quoted(tensor.first),
                           Quoted(tensor.second.dtype), fmt::join(tensor.second.shape, ", "));
      },
      &text);
  return text + "\n}\n";
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
    if (version < 1) return base::DataLoss("damaged manifest: format version {}", version);
    Manifest manifest = ParseFields(in);
    if (!manifest.run.empty() && !base::IsUid(manifest.run))
      return base::DataLoss("damaged manifest: its run is no id");
    RETURN_IF_ERROR(ParseTensors(in, version, &manifest));
    return manifest;
  } catch (const json::exception& error) {
    return base::DataLoss("damaged manifest: {}", error.what());
  }
}

std::string ManifestDigest(std::string_view text) { return "xxh3:" + base::Hash128Hex(text); }

Status CheckCoverage(const Manifest& manifest) {
  RETURN_IF_ERROR(CheckTensors(manifest));
  for (const auto& [key, tensor] : manifest.tensors) RETURN_IF_ERROR(CheckWhole(key, tensor));
  return OkStatus();
}

std::set<std::string> DataFilesOf(const Manifest& manifest) {
  std::set<std::string> files;
  for (const RankEntry& rank : manifest.ranks) files.insert(rank.file);
  for (const auto& [key, tensor] : manifest.tensors) {
    for (const SliceEntry& slice : tensor.slices) files.insert(slice.file);
  }
  return files;
}

std::set<std::string> FilesOf(const Manifest& manifest) {
  std::set<std::string> files = DataFilesOf(manifest);
  for (const RankEntry& rank : manifest.ranks) files.insert(rank.manifest);
  return files;
}

}  // namespace mt::checkpoint
