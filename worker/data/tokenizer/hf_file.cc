// One function for each component of the file.
#include "worker/data/tokenizer/hf_file.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "common/base/plain_text.h"
#include "worker/data/tokenizer/byte_alphabet.h"
#include "worker/data/tokenizer/fast_splitters.h"
#include "worker/data/tokenizer/vocabulary.h"

namespace mt::data {
namespace {

using nlohmann::json;

// The member, or null where there is none.
const json& Member(const json& object, const char* name) {
  static const json null;
  if (!object.is_object()) return null;
  const auto found = object.find(name);
  return found == object.end() ? null : *found;
}

bool Flag(const json& object, const char* name, bool otherwise) {
  const json& value = Member(object, name);
  return value.is_boolean() ? value.get<bool>() : otherwise;
}

std::string Text(const json& value) {
  return value.is_string() ? value.get<std::string>() : std::string();
}

std::string TypeOf(const json& component) {
  const std::string type = Text(Member(component, "type"));
  return base::CleanLine(type.empty() ? "of no type" : type.substr(0, 64));
}

Status NotSupported(std::string_view component, std::string_view what) {
  return base::InvalidArgument(
      "{}: {} is not supported; supported: byte-level BPE (model BPE, pre_tokenizer ByteLevel, "
      "Split and Digits, decoder ByteLevel) without a normalizer",
      component, what);
}

Status ReadSplit(const json& split, BpeParts* parts) {
  const json& pattern = Member(split, "pattern");
  std::string regex = Text(Member(pattern, "Regex"));
  const std::string literal = Text(Member(pattern, "String"));
  if (regex.empty() && !literal.empty() && literal.find("\\E") == std::string::npos)
    regex = "\\Q" + literal + "\\E";
  if (regex.empty()) return NotSupported("pre_tokenizer.Split", "its pattern");
  const std::string behavior = Text(Member(split, "behavior"));
  const bool invert = Flag(split, "invert", false);
  // Of a pattern that leaves nothing between its matches it is the same.
  const bool keeps_matches = behavior == "Removed" && invert && FindFastSplitter(regex) != nullptr;
  if ((behavior != "Isolated" || invert) && !keeps_matches) {
    return NotSupported("pre_tokenizer.Split",
                        fmt::format("behavior {}{}", base::CleanLine(behavior.substr(0, 64)),
                                    invert ? " with invert" : ""));
  }
  parts->patterns.push_back(std::move(regex));
  return OkStatus();
}

// *bytes becomes true where ByteLevel was met; nothing may follow it.
Status ReadPreTokenizer(const json& component, bool* bytes, BpeParts* parts, int depth = 0) {
  const std::string type = TypeOf(component);
  if (*bytes) return NotSupported("pre_tokenizer", type + " after ByteLevel");
  if (type == "Sequence" && depth == 0) {
    const json& list = Member(component, "pretokenizers");
    if (!list.is_array()) return NotSupported("pre_tokenizer.Sequence", "without its list");
    for (const json& one : list) RETURN_IF_ERROR(ReadPreTokenizer(one, bytes, parts, depth + 1));
    return OkStatus();
  }
  if (type == "Split") return ReadSplit(component, parts);
  if (type == "Digits") {
    parts->patterns.emplace_back(Flag(component, "individual_digits", false) ? R"(\p{N})"
                                                                             : R"(\p{N}+)");
    return OkStatus();
  }
  if (type != "ByteLevel") return NotSupported("pre_tokenizer", type);
  if (Flag(component, "add_prefix_space", true))
    return NotSupported("pre_tokenizer.ByteLevel", "add_prefix_space");
  if (Flag(component, "use_regex", true)) parts->patterns.emplace_back(kGpt2Pattern);
  *bytes = true;
  return OkStatus();
}

Status ReadAddedTokens(const json& list, size_t num_tokens, BpeParts* parts) {
  if (list.is_null()) return OkStatus();
  if (!list.is_array()) return base::InvalidArgument("added_tokens: not a list");
  for (const json& one : list) {
    NamedToken token;
    token.text = Text(Member(one, "content"));
    if (token.text.empty()) return base::InvalidArgument("added_tokens: a token without content");
    const StatusOr<int32_t> id = IdOf(Member(one, "id"), token.text, num_tokens + list.size());
    if (!id.ok()) return base::Annotate(id.status(), "added_tokens");
    token.id = *id;
    for (const char* rule : {"single_word", "lstrip", "rstrip"}) {
      if (Flag(one, rule, false)) {
        return NotSupported("added_tokens", fmt::format("{} of \"{}\"", rule,
                                                        base::CleanLine(token.text.substr(0, 64))));
      }
    }
    parts->named.push_back(std::move(token));
  }
  return OkStatus();
}

Status ReadMerges(const json& merges, const Vocabulary& vocabulary, BpeTables* tables) {
  if (!merges.is_array()) return base::InvalidArgument("model.merges: not a list");
  for (const json& one : merges) {
    std::string left, right;
    if (one.is_string()) {
      const auto& text = one.get_ref<const std::string&>();
      const size_t space = text.find(' ');
      left = text.substr(0, space);
      if (space != std::string::npos) right = text.substr(space + 1);
    } else if (one.is_array() && one.size() == 2) {
      left = Text(one[0]);
      right = Text(one[1]);
    }
    if (left.empty() || right.empty()) {
      return base::InvalidArgument("model.merges: merge {} is not of two tokens",
                                   tables->merges.size());
    }
    const Status added = vocabulary.AddMerge(left, right, tables);
    if (!added.ok()) return base::Annotate(added, "model.merges");
  }
  return OkStatus();
}

Status CheckModel(const json& model) {
  // Older files leave the type out.
  const bool bpe =
      Member(model, "type").is_null() ? Member(model, "merges").is_array() : TypeOf(model) == "BPE";
  if (!bpe) return NotSupported("model", TypeOf(model));
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!Text(Member(model, affix)).empty()) return NotSupported("model", affix);
  }
  if (Flag(model, "byte_fallback", false)) return NotSupported("model", "byte_fallback");
  const json& dropout = Member(model, "dropout");
  if (dropout.is_number() && dropout.get<double>() != 0) return NotSupported("model", "dropout");
  return OkStatus();
}

}  // namespace

StatusOr<BpeParts> ParseHfFile(std::string_view text) {
  ASSIGN_OR_RETURN(const json root, ParseJsonText(text));
  const json& model = Member(root, "model");
  if (!model.is_object()) return base::InvalidArgument("not a tokenizer.json: it has no model");
  RETURN_IF_ERROR(CheckModel(model));
  const json& normalizer = Member(root, "normalizer");
  if (!normalizer.is_null()) return NotSupported("normalizer", TypeOf(normalizer));
  BpeParts parts;
  parts.name = "hf";
  bool bytes = false;
  const json& pre_tokenizer = Member(root, "pre_tokenizer");
  if (pre_tokenizer.is_null()) return NotSupported("pre_tokenizer", "none");
  RETURN_IF_ERROR(ReadPreTokenizer(pre_tokenizer, &bytes, &parts));
  if (!bytes) return NotSupported("pre_tokenizer", "text that is not made bytes (no ByteLevel)");
  const json& decoder = Member(root, "decoder");
  if (TypeOf(decoder) != "ByteLevel") return NotSupported("decoder", TypeOf(decoder));
  const StatusOr<Vocabulary> vocabulary = Vocabulary::FromJson(Member(model, "vocab"));
  if (!vocabulary.ok()) return base::Annotate(vocabulary.status(), "model.vocab");
  RETURN_IF_ERROR(ReadAddedTokens(Member(root, "added_tokens"), vocabulary->size(), &parts));
  std::unordered_map<int32_t, std::string_view> named;
  for (const NamedToken& token : parts.named) named.emplace(token.id, token.text);
  const Status filled = vocabulary->FillTokens(named, &parts.tables);
  if (!filled.ok()) return base::Annotate(filled, "model.vocab");
  RETURN_IF_ERROR(ReadMerges(Member(model, "merges"), *vocabulary, &parts.tables));
  parts.tables.ignore_merges = Flag(model, "ignore_merges", false);
  return parts;
}

std::string HfFileText(const BpeParts& parts) {
  const std::vector<std::string>& tokens = parts.tables.tokens;
  nlohmann::ordered_json vocab = nlohmann::ordered_json::object();
  auto& spelled = vocab.get_ref<nlohmann::ordered_json::object_t&>();
  for (size_t id = 0; id < tokens.size(); ++id) {
    // push_back: an ordered object looks for the key among all others otherwise.
    if (!tokens[id].empty()) spelled.push_back({AlphabetOfBytes(tokens[id]), id});
  }
  nlohmann::ordered_json merges = nlohmann::ordered_json::array();
  for (const BpeMerge& merge : parts.tables.merges) {
    merges.push_back({AlphabetOfBytes(tokens[static_cast<size_t>(merge.left)]),
                      AlphabetOfBytes(tokens[static_cast<size_t>(merge.right)])});
  }
  nlohmann::ordered_json added = nlohmann::ordered_json::array();
  for (const NamedToken& token : parts.named) {
    added.push_back({{"id", token.id},
                     {"content", token.text},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  const auto byte_level = [](bool use_regex) {
    return nlohmann::ordered_json{{"type", "ByteLevel"},
                                  {"add_prefix_space", false},
                                  {"trim_offsets", true},
                                  {"use_regex", use_regex}};
  };
  nlohmann::ordered_json pre_tokenizer = byte_level(true);
  if (parts.patterns.front() != kGpt2Pattern) {
    const nlohmann::ordered_json split = {{"type", "Split"},
                                          {"pattern", {{"Regex", parts.patterns.front()}}},
                                          {"behavior", "Isolated"},
                                          {"invert", false}};
    pre_tokenizer = {{"type", "Sequence"},
                     {"pretokenizers", nlohmann::ordered_json::array({split, byte_level(false)})}};
  }
  const nlohmann::ordered_json root = {{"version", "1.0"},
                                       {"truncation", nullptr},
                                       {"padding", nullptr},
                                       {"added_tokens", std::move(added)},
                                       {"normalizer", nullptr},
                                       {"pre_tokenizer", std::move(pre_tokenizer)},
                                       {"post_processor", nullptr},
                                       {"decoder", byte_level(true)},
                                       {"model",
                                        {{"type", "BPE"},
                                         {"dropout", nullptr},
                                         {"unk_token", nullptr},
                                         {"continuing_subword_prefix", nullptr},
                                         {"end_of_word_suffix", nullptr},
                                         {"fuse_unk", false},
                                         {"byte_fallback", false},
                                         {"ignore_merges", parts.tables.ignore_merges},
                                         {"vocab", std::move(vocab)},
                                         {"merges", std::move(merges)}}}};
  return root.dump(1) + "\n";
}

}  // namespace mt::data
