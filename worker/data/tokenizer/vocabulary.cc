// Ids may have holes, which added tokens fill, but not many: memory follows the largest one.
#include "worker/data/tokenizer/vocabulary.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "common/base/plain_text.h"
#include "worker/data/tokenizer/byte_alphabet.h"

namespace mt::data {
namespace {

constexpr int64_t kSpareIds = 65536;
constexpr int64_t kIdsPerToken = 4;

std::string Shown(std::string_view token, size_t longest = 64) {
  return base::CleanLine(std::string(token.substr(0, longest)));
}

}  // namespace

StatusOr<nlohmann::json> ParseJsonText(std::string_view text) {
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception& error) {
    return base::InvalidArgument("damaged JSON: {}; copy the file anew", Shown(error.what(), 160));
  }
}

StatusOr<int32_t> IdOf(const nlohmann::json& value, std::string_view token, size_t num_tokens) {
  const int64_t most = kIdsPerToken * static_cast<int64_t>(num_tokens) + kSpareIds;
  if (!value.is_number_integer()) {
    return base::InvalidArgument("the id of \"{}\" is not a whole number", Shown(token));
  }
  const bool large =
      value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(most);
  const int64_t id = large ? most + 1 : value.get<int64_t>();
  if (id < 0 || id > most) {
    return base::InvalidArgument("the id of \"{}\" is outside 0 ... {}, for {} tokens",
                                 Shown(token), most, num_tokens);
  }
  return static_cast<int32_t>(id);
}

StatusOr<Vocabulary> Vocabulary::FromJson(const nlohmann::json& object) {
  if (!object.is_object() || object.empty())
    return base::InvalidArgument("the vocabulary is not an object of tokens with ids");
  Vocabulary made;
  std::unordered_map<int32_t, std::string_view> by_id;
  for (const auto& [token, value] : object.items()) {
    ASSIGN_OR_RETURN(const int32_t id, IdOf(value, token, object.size()));
    const auto [other, fresh] = by_id.emplace(id, "");
    if (!fresh) {
      return base::InvalidArgument("id {} is that of two tokens: \"{}\" and \"{}\"", id,
                                   Shown(other->second), Shown(token));
    }
    const auto entry = made.ids_.emplace(token, id).first;
    other->second = entry->first;
    made.max_id_ = std::max(made.max_id_, id);
  }
  return made;
}

int32_t Vocabulary::IdOfSpelled(std::string_view spelled) const {
  const auto found = ids_.find(std::string(spelled));
  return found == ids_.end() ? -1 : found->second;
}

Status Vocabulary::AddMerge(std::string_view left, std::string_view right,
                            BpeTables* tables) const {
  BpeMerge merge{};
  const std::string result = std::string(left).append(right);
  for (const auto& [spelled, id] :
       {std::pair(left, &merge.left), {right, &merge.right}, {result, &merge.result}}) {
    *id = IdOfSpelled(spelled);
    if (*id >= 0) continue;
    return base::InvalidArgument("merge {}, of \"{}\" and \"{}\", names \"{}\", which is no token",
                                 tables->merges.size(), Shown(left), Shown(right), Shown(spelled));
  }
  tables->merges.push_back(merge);
  return OkStatus();
}

Status Vocabulary::FillTokens(const std::unordered_map<int32_t, std::string_view>& named,
                              BpeTables* tables) const {
  tables->tokens.assign(static_cast<size_t>(max_id_) + 1, "");
  for (const auto& [spelled, id] : ids_) {
    const std::optional<std::string> bytes = BytesOfAlphabet(spelled);
    const auto other = named.find(id);
    if (other != named.end()) {
      // A token of the vocabulary that is an added one, too: merges may make it.
      if (bytes && !bytes->empty() && other->second == *bytes)
        tables->tokens[static_cast<size_t>(id)] = *bytes;
      if (other->second == spelled || other->second == bytes) continue;
      return base::InvalidArgument("id {} is that of two tokens: \"{}\" and \"{}\"", id,
                                   Shown(spelled), Shown(other->second));
    }
    if (!bytes || bytes->empty()) {
      return base::InvalidArgument(
          "token {}, \"{}\", is not spelled in the byte alphabet: not a byte-level vocabulary", id,
          Shown(spelled));
    }
    tables->tokens[static_cast<size_t>(id)] = *bytes;
  }
  return OkStatus();
}

Status Vocabulary::FillTexts(const std::unordered_map<int32_t, std::string_view>& named,
                             BpeTables* tables) const {
  tables->tokens.assign(static_cast<size_t>(max_id_) + 1, "");
  for (const auto& [spelled, id] : ids_) {
    if (spelled.empty()) return base::InvalidArgument("token {} has no text", id);
    const auto other = named.find(id);
    if (other != named.end() && other->second != spelled) {
      return base::InvalidArgument("id {} is that of two tokens: \"{}\" and \"{}\"", id,
                                   Shown(spelled), Shown(other->second));
    }
    tables->tokens[static_cast<size_t>(id)] = spelled;
  }
  return OkStatus();
}

}  // namespace mt::data
