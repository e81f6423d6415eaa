// A vocabulary as files spell it, most in the byte alphabet, and the merges that name its tokens.
// Shared by the readers of vocab.json and of tokenizer.json. Internal to worker/data/tokenizer.
// Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "common/base/status.h"
#include "worker/data/tokenizer/bpe_model.h"

namespace mt::data {

// The JSON value of a file's text; kInvalidArgument with the place where it is damaged.
StatusOr<nlohmann::json> ParseJsonText(std::string_view text);
// A JSON integer in [0, the most that `num_tokens` tokens justify]; kInvalidArgument for others,
// which would take memory without bound. `token` is for the message.
StatusOr<int32_t> IdOf(const nlohmann::json& value, std::string_view token, size_t num_tokens);

class Vocabulary {
 public:
  // From {"token": id, ...}. kInvalidArgument for an id that is none or that two tokens have.
  static StatusOr<Vocabulary> FromJson(const nlohmann::json& object);

  size_t size() const { return ids_.size(); }
  // -1 where there is no such token.
  int32_t IdOfSpelled(std::string_view spelled) const;
  // Adds the merge of two tokens, which it checks, to `tables`.
  Status AddMerge(std::string_view left, std::string_view right, BpeTables* tables) const;
  // The bytes of all tokens, but for those that `named`, texts by id, has too. kInvalidArgument for
  // a token that the alphabet does not spell, and for an id that `named` gives another text.
  Status FillTokens(const std::unordered_map<int32_t, std::string_view>& named,
                    BpeTables* tables) const;
  // The same for tokens that are texts as they are spelled.
  Status FillTexts(const std::unordered_map<int32_t, std::string_view>& named,
                   BpeTables* tables) const;

 private:
  std::unordered_map<std::string, int32_t> ids_;
  int32_t max_id_ = -1;
};

}  // namespace mt::data
