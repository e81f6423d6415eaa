// Of byte-level files the patterns, of the others all rules: what the tokenizers library would do
// and this project does not is refused by the component's name, so that no file gives other tokens.
#include "worker/data/tokenizer/hf_components.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "common/base/plain_text.h"
#include "worker/data/tokenizer/fast_splitters.h"
#include "worker/data/tokenizer/unicode.h"

namespace mt::data {

using nlohmann::json;

const json& JsonMember(const json& object, const char* name) {
  static const json null;
  if (!object.is_object()) return null;
  const auto found = object.find(name);
  return found == object.end() ? null : *found;
}

bool JsonFlag(const json& object, const char* name, bool otherwise) {
  const json& value = JsonMember(object, name);
  return value.is_boolean() ? value.get<bool>() : otherwise;
}

std::string JsonString(const json& value) {
  return value.is_string() ? value.get<std::string>() : std::string();
}

std::string ComponentType(const json& component) {
  const std::string type = JsonString(JsonMember(component, "type"));
  return base::CleanLine(type.empty() ? "of no type" : type.substr(0, 64));
}

Status NotSupported(std::string_view component, std::string_view what) {
  return base::InvalidArgument(
      "{}: {} is not supported; supported: byte-level BPE (pre_tokenizer ByteLevel, Split and "
      "Digits, decoder ByteLevel) without a normalizer or with NFC, and BPE over characters "
      "(normalizer Prepend and Replace, pre_tokenizer Metaspace, decoder Replace, ByteFallback, "
      "Fuse, Strip and "
      "Metaspace)",
      component, what);
}

namespace {

// The regular expression of a text; that of signs is escaped.
std::string PatternOf(std::string_view text) {
  constexpr std::string_view kSigns = R"(!"#$%&'()*+,-./:;<=>?@[\]^_`{|}~)";
  std::string pattern;
  for (const char c : text) {
    if (kSigns.find(c) != std::string_view::npos) pattern.push_back('\\');
    pattern.push_back(c);
  }
  return pattern;
}

Status ReadSplit(const json& split, std::vector<std::string>* patterns) {
  const json& pattern = JsonMember(split, "pattern");
  std::string regex = JsonString(JsonMember(pattern, "Regex"));
  const std::string literal = JsonString(JsonMember(pattern, "String"));
  if (regex.empty()) regex = PatternOf(literal);
  if (regex.empty()) return NotSupported("pre_tokenizer.Split", "its pattern");
  const std::string behavior = JsonString(JsonMember(split, "behavior"));
  const bool invert = JsonFlag(split, "invert", false);
  // Of a pattern that leaves nothing between its matches it is the same.
  const bool keeps_matches = behavior == "Removed" && invert && FindFastSplitter(regex) != nullptr;
  if ((behavior != "Isolated" || invert) && !keeps_matches) {
    return NotSupported("pre_tokenizer.Split",
                        fmt::format("behavior {}{}", base::CleanLine(behavior.substr(0, 64)),
                                    invert ? " with invert" : ""));
  }
  patterns->push_back(std::move(regex));
  return OkStatus();
}

// *bytes becomes true where ByteLevel was met; nothing may follow it.
Status ReadPreTokenizer(const json& component, bool* bytes, std::vector<std::string>* patterns,
                        int depth = 0) {
  const std::string type = ComponentType(component);
  if (*bytes) return NotSupported("pre_tokenizer", type + " after ByteLevel");
  if (type == "Sequence" && depth == 0) {
    const json& list = JsonMember(component, "pretokenizers");
    if (!list.is_array()) return NotSupported("pre_tokenizer.Sequence", "without its list");
    for (const json& one : list) RETURN_IF_ERROR(ReadPreTokenizer(one, bytes, patterns, depth + 1));
    return OkStatus();
  }
  if (type == "Split") return ReadSplit(component, patterns);
  if (type == "Digits") {
    patterns->emplace_back(JsonFlag(component, "individual_digits", false) ? kDigitPattern
                                                                           : kDigitsPattern);
    return OkStatus();
  }
  if (type != "ByteLevel") return NotSupported("pre_tokenizer", type);
  if (JsonFlag(component, "add_prefix_space", true))
    return NotSupported("pre_tokenizer.ByteLevel", "add_prefix_space");
  if (JsonFlag(component, "use_regex", true)) patterns->emplace_back(kGpt2Pattern);
  *bytes = true;
  return OkStatus();
}

// A file's steps may not make a text grow beyond this: one of 3 bytes for a space is the usual.
constexpr size_t kMostGrowth = 4;
constexpr size_t kMostSteps = 32;
constexpr size_t kMostBytes = 256;  // of a step's texts
constexpr uint64_t kMostStripped = 1 << 20;

// The list of a Sequence of such components, else the one; nothing of null.
StatusOr<std::vector<const json*>> Steps(std::string_view component, const json& value,
                                         const char* list_name, int depth = 0) {
  if (value.is_null()) return std::vector<const json*>{};
  if (ComponentType(value) != "Sequence") return std::vector<const json*>{&value};
  const json& list = JsonMember(value, list_name);
  const std::string name = fmt::format("{}.Sequence", component);
  if (!list.is_array()) return NotSupported(name, "without its list");
  if (depth > 1) return NotSupported(name, "so many Sequences within each other");
  std::vector<const json*> steps;
  for (const json& one : list) {
    ASSIGN_OR_RETURN(const auto inner, Steps(component, one, list_name, depth + 1));
    steps.insert(steps.end(), inner.begin(), inner.end());
    if (steps.size() > kMostSteps) return NotSupported(name, "so many steps");
  }
  return steps;
}

// A text of a step, of at most kMostBytes.
StatusOr<std::string> StepText(const std::string& component, const char* name, const json& value) {
  if (!value.is_string()) return NotSupported(component, fmt::format("{} that is no text", name));
  std::string text = value.get<std::string>();
  if (text.size() <= kMostBytes) return text;
  return NotSupported(component, fmt::format("{} of {} bytes", name, text.size()));
}

struct Replacement {
  std::string pattern, content;
};

// *growth is what the steps before make of a byte at most, and these.
StatusOr<Replacement> ReadReplace(const std::string& component, const json& step, size_t* growth) {
  const json& pattern = JsonMember(step, "pattern");
  if (!JsonMember(pattern, "Regex").is_null())
    return NotSupported(component, "a regular expression as its pattern");
  Replacement read;
  ASSIGN_OR_RETURN(read.pattern, StepText(component, "a pattern", JsonMember(pattern, "String")));
  ASSIGN_OR_RETURN(read.content, StepText(component, "content", JsonMember(step, "content")));
  if (read.pattern.empty()) return NotSupported(component, "an empty pattern");
  *growth *=
      std::max<size_t>(1, (read.content.size() + read.pattern.size() - 1) / read.pattern.size());
  if (*growth > kMostGrowth)
    return NotSupported(component, fmt::format("text that becomes {} times as long", *growth));
  return read;
}

StatusOr<std::vector<NormalizerStep>> ReadNormalizer(const json& normalizer) {
  std::vector<NormalizerStep> steps;
  size_t growth = 1;
  ASSIGN_OR_RETURN(const auto list, Steps("normalizer", normalizer, "normalizers"));
  for (const json* const step : list) {
    const std::string type = ComponentType(*step);
    const std::string name = "normalizer." + type;
    if (type == "Prepend") {
      NormalizerStep prepend;
      ASSIGN_OR_RETURN(prepend.content, StepText(name, "prepend", JsonMember(*step, "prepend")));
      steps.push_back(std::move(prepend));
    } else if (type == "Replace") {
      ASSIGN_OR_RETURN(Replacement replace, ReadReplace(name, *step, &growth));
      steps.push_back(
          {.pattern = std::move(replace.pattern), .content = std::move(replace.content)});
    } else {
      return NotSupported("normalizer", type);
    }
  }
  return steps;
}

// A character that a component must have under the name.
StatusOr<std::string> ReadCharacter(const std::string& component, const char* name,
                                    const json& step) {
  std::string text = JsonString(JsonMember(step, name));
  if (text.empty() || DecodeUtf8(text.data()).bytes != text.size())
    return NotSupported(component, fmt::format("{} that is not one character", name));
  return text;
}

StatusOr<Metaspace> ReadMetaspace(const std::string& component, const json& step) {
  Metaspace rule;
  ASSIGN_OR_RETURN(rule.mark, ReadCharacter(component, "replacement", step));
  const json& scheme = JsonMember(step, "prepend_scheme");
  const std::string prepend = scheme.is_null() ? "always" : JsonString(scheme);
  if (prepend == "never") {
    rule.prepend = Metaspace::Prepend::kNever;
  } else if (prepend == "first") {
    rule.prepend = Metaspace::Prepend::kFirst;
  } else if (prepend != "always") {
    return NotSupported(component,
                        "prepend_scheme " + base::CleanLine(std::string(prepend).substr(0, 64)));
  }
  if (!JsonFlag(step, "add_prefix_space", true) && prepend != "never")
    return NotSupported(component, "add_prefix_space with prepend_scheme " + prepend);
  rule.split = JsonFlag(step, "split", true);
  return rule;
}

// Whether a Split by this text finds nothing in what the normalizer leaves.
bool FindsNothing(const json& split, const std::vector<NormalizerStep>& normalizer) {
  const std::string text = JsonString(JsonMember(JsonMember(split, "pattern"), "String"));
  if (text.size() != 1 || JsonFlag(split, "invert", false)) return false;
  bool gone = false;
  for (const NormalizerStep& step : normalizer) {
    if (step.content.find(text) != std::string::npos) gone = false;
    if (step.pattern == text) gone = step.content.find(text) == std::string::npos;
  }
  return gone;
}

Status ReadTextSplits(const json& pre_tokenizer, TextRules* rules) {
  ASSIGN_OR_RETURN(const auto list, Steps("pre_tokenizer", pre_tokenizer, "pretokenizers"));
  for (const json* const step : list) {
    const std::string type = ComponentType(*step);
    if (type == "Split" && FindsNothing(*step, rules->normalizer)) continue;
    if (type != "Metaspace" || rules->metaspace) return NotSupported("pre_tokenizer", type);
    ASSIGN_OR_RETURN(rules->metaspace, ReadMetaspace("pre_tokenizer.Metaspace", *step));
    if (rules->metaspace->prepend == Metaspace::Prepend::kFirst && !rules->normalizer.empty())
      return NotSupported("pre_tokenizer.Metaspace", "prepend_scheme first after a normalizer");
  }
  return OkStatus();
}

StatusOr<DecoderStep> ReadStrip(const json& step) {
  DecoderStep read = {.kind = DecoderStep::Kind::kStrip};
  ASSIGN_OR_RETURN(read.pattern, ReadCharacter("decoder.Strip", "content", step));
  for (const auto& [name, field] : {std::pair("start", &read.start), {"stop", &read.stop}}) {
    const json& value = JsonMember(step, name);
    if (!value.is_number_unsigned() || value.get<uint64_t>() > kMostStripped)
      return NotSupported("decoder.Strip", fmt::format("its {}", name));
    *field = value.get<size_t>();
  }
  return read;
}

StatusOr<std::vector<DecoderStep>> ReadDecoder(const json& decoder) {
  using Kind = DecoderStep::Kind;
  if (decoder.is_null()) return NotSupported("decoder", "none");
  std::vector<DecoderStep> steps;
  size_t growth = 1;
  ASSIGN_OR_RETURN(const auto list, Steps("decoder", decoder, "decoders"));
  for (const json* const step : list) {
    const std::string type = ComponentType(*step);
    if (type == "Replace") {
      ASSIGN_OR_RETURN(Replacement replace, ReadReplace("decoder.Replace", *step, &growth));
      steps.push_back({.kind = Kind::kReplace,
                       .pattern = std::move(replace.pattern),
                       .content = std::move(replace.content)});
    } else if (type == "ByteFallback") {
      steps.push_back({.kind = Kind::kByteFallback});
    } else if (type == "Fuse") {
      steps.push_back({.kind = Kind::kFuse});
    } else if (type == "Strip") {
      ASSIGN_OR_RETURN(steps.emplace_back(), ReadStrip(*step));
    } else if (type == "Metaspace") {
      ASSIGN_OR_RETURN(Metaspace rule, ReadMetaspace("decoder.Metaspace", *step));
      steps.push_back({.kind = Kind::kMetaspace,
                       .pattern = std::move(rule.mark),
                       .drop = rule.prepend != Metaspace::Prepend::kNever});
    } else {
      return NotSupported("decoder", type);
    }
  }
  return steps;
}

}  // namespace

bool HasByteLevel(const json& pre_tokenizer) {
  if (ComponentType(pre_tokenizer) == "ByteLevel") return true;
  const json& list = JsonMember(pre_tokenizer, "pretokenizers");
  return list.is_array() && std::ranges::any_of(list, [](const json& one) {
           return ComponentType(one) == "ByteLevel";
         });
}

StatusOr<bool> ReadNfc(const json& normalizer) {
  ASSIGN_OR_RETURN(const auto list, Steps("normalizer", normalizer, "normalizers"));
  for (const json* const step : list) {
    const std::string type = ComponentType(*step);
    if (type != "NFC") return NotSupported("normalizer", type);
  }
  return !list.empty();
}

StatusOr<std::vector<std::string>> ReadSplits(const json& pre_tokenizer) {
  std::vector<std::string> patterns;
  bool bytes = false;
  RETURN_IF_ERROR(ReadPreTokenizer(pre_tokenizer, &bytes, &patterns));
  return patterns;
}

StatusOr<TextRules> ReadTextRules(const json& root) {
  TextRules rules;
  ASSIGN_OR_RETURN(rules.normalizer, ReadNormalizer(JsonMember(root, "normalizer")));
  RETURN_IF_ERROR(ReadTextSplits(JsonMember(root, "pre_tokenizer"), &rules));
  ASSIGN_OR_RETURN(rules.decoder, ReadDecoder(JsonMember(root, "decoder")));
  return rules;
}

}  // namespace mt::data
