// Model and added tokens; hf_components reads the rest.
#include "worker/data/tokenizer/hf_file.h"

#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <nlohmann/json.hpp>

#include "common/base/plain_text.h"
#include "worker/data/tokenizer/fast_splitters.h"
#include "worker/data/tokenizer/hf_components.h"
#include "worker/data/tokenizer/vocabulary.h"

namespace mt::data {
namespace {

using nlohmann::json;

Status ReadAddedTokens(const json& list, size_t num_tokens, BpeParts* parts) {
  if (list.is_null()) return OkStatus();
  if (!list.is_array()) return base::InvalidArgument("added_tokens: not a list");
  for (const json& one : list) {
    NamedToken token;
    token.text = JsonString(JsonMember(one, "content"));
    if (token.text.empty()) return base::InvalidArgument("added_tokens: a token without content");
    const StatusOr<int32_t> id = IdOf(JsonMember(one, "id"), token.text, num_tokens + list.size());
    if (!id.ok()) return base::Annotate(id.status(), "added_tokens");
    token.id = *id;
    token.single_word = JsonFlag(one, "single_word", false);
    token.lstrip = JsonFlag(one, "lstrip", false);
    token.rstrip = JsonFlag(one, "rstrip", false);
    token.normalized = JsonFlag(one, "normalized", !JsonFlag(one, "special", false));
    parts->named.push_back(std::move(token));
  }
  return OkStatus();
}

// The tokenizers library does not read the ids: a text of the vocabulary has that one's, others are
// counted behind it. A file that says otherwise has other tokens there.
Status CheckAddedIds(const Vocabulary& vocabulary, const std::vector<NamedToken>& named) {
  auto next = static_cast<int32_t>(vocabulary.size());
  std::unordered_set<std::string_view> seen;
  for (const NamedToken& token : named) {
    const std::string shown = base::CleanLine(token.text.substr(0, 64));
    if (!seen.insert(token.text).second)
      return base::InvalidArgument("added_tokens: \"{}\" is there twice", shown);
    const int32_t own = vocabulary.IdOfSpelled(token.text);
    const int32_t id = own >= 0 ? own : next++;
    if (id == token.id) continue;
    return base::InvalidArgument(
        "added_tokens: \"{}\" has id {} in the file, but the tokenizers library takes it for {}, "
        "behind the vocabulary's {} tokens: give the added tokens ids without holes, ascending",
        shown, token.id, id, vocabulary.size());
  }
  return OkStatus();
}

Status ReadMerges(const json& merges, const Vocabulary& vocabulary, BpeTables* tables) {
  if (!merges.is_array()) return base::InvalidArgument("model.merges: not a list");
  for (const json& one : merges) {
    std::string left, right;
    if (one.is_string()) {
      const auto& text = one.get_ref<const std::string&>();
      if (text.starts_with("#version")) continue;
      const size_t space = text.find(' ');
      left = text.substr(0, space);
      // A token with a space in it can be told in a pair only.
      if (space != std::string::npos && space == text.rfind(' ')) right = text.substr(space + 1);
    } else if (one.is_array() && one.size() == 2) {
      left = JsonString(one[0]);
      right = JsonString(one[1]);
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
  const bool bpe = JsonMember(model, "type").is_null() ? JsonMember(model, "merges").is_array()
                                                       : ComponentType(model) == "BPE";
  if (!bpe) return NotSupported("model", ComponentType(model));
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!JsonString(JsonMember(model, affix)).empty()) return NotSupported("model", affix);
  }
  const json& dropout = JsonMember(model, "dropout");
  if (dropout.is_number() && dropout.get<double>() != 0) return NotSupported("model", "dropout");
  return OkStatus();
}

StatusOr<UnknownRules> ReadUnknown(const json& model) {
  UnknownRules rules = {.byte_fallback = JsonFlag(model, "byte_fallback", false),
                        .fuse_unk = JsonFlag(model, "fuse_unk", false)};
  const json& token = JsonMember(model, "unk_token");
  if (!token.is_null() && JsonString(token).empty())
    return base::InvalidArgument("model.unk_token: not the text of a token");
  rules.unk_token = JsonString(token);
  return rules;
}

// What is done to text around the model: of a byte-level file the patterns, of others the rules.
Status ReadComponents(const json& root, BpeParts* parts) {
  const json& model = JsonMember(root, "model");
  const json& pre_tokenizer = JsonMember(root, "pre_tokenizer");
  if (!HasByteLevel(pre_tokenizer)) {
    ASSIGN_OR_RETURN(parts->text, ReadTextRules(root));
    ASSIGN_OR_RETURN(parts->text->unknown, ReadUnknown(model));
    return OkStatus();
  }
  if (JsonFlag(model, "byte_fallback", false))
    return NotSupported("model", "byte_fallback with ByteLevel");
  ASSIGN_OR_RETURN(parts->nfc, ReadNfc(JsonMember(root, "normalizer")));
  ASSIGN_OR_RETURN(parts->patterns, ReadSplits(pre_tokenizer));
  const std::string decoder = ComponentType(JsonMember(root, "decoder"));
  return decoder == "ByteLevel" ? OkStatus() : NotSupported("decoder", decoder);
}

}  // namespace

StatusOr<BpeParts> ParseHfFile(std::string_view text) {
  ASSIGN_OR_RETURN(const json root, ParseJsonText(text));
  const json& model = JsonMember(root, "model");
  if (!model.is_object()) return base::InvalidArgument("not a tokenizer.json: it has no model");
  RETURN_IF_ERROR(CheckModel(model));
  BpeParts parts;
  parts.name = "hf";
  RETURN_IF_ERROR(ReadComponents(root, &parts));
  const StatusOr<Vocabulary> vocabulary = Vocabulary::FromJson(JsonMember(model, "vocab"));
  if (!vocabulary.ok()) return base::Annotate(vocabulary.status(), "model.vocab");
  RETURN_IF_ERROR(ReadAddedTokens(JsonMember(root, "added_tokens"), vocabulary->size(), &parts));
  std::unordered_map<int32_t, std::string_view> named;
  for (const NamedToken& token : parts.named) named.emplace(token.id, token.text);
  const Status filled = parts.text ? vocabulary->FillTexts(named, &parts.tables)
                                   : vocabulary->FillTokens(named, &parts.tables);
  if (!filled.ok()) return base::Annotate(filled, "model.vocab");
  RETURN_IF_ERROR(CheckAddedIds(*vocabulary, parts.named));
  RETURN_IF_ERROR(ReadMerges(JsonMember(model, "merges"), *vocabulary, &parts.tables));
  parts.tables.ignore_merges = JsonFlag(model, "ignore_merges", false);
  return parts;
}

}  // namespace mt::data
