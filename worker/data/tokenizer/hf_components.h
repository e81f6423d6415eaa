// The components of a tokenizer.json other than its model and added tokens: normalizer,
// pre_tokenizer, decoder. Internal to worker/data/tokenizer. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "common/base/status.h"
#include "worker/data/tokenizer/text_tokenizer.h"

namespace mt::data {

// The member of an object, or null where there is none.
const nlohmann::json& JsonMember(const nlohmann::json& object, const char* name);
bool JsonFlag(const nlohmann::json& object, const char* name, bool otherwise);
// "" where it is none.
std::string JsonString(const nlohmann::json& value);
// The component's, for messages too.
std::string ComponentType(const nlohmann::json& component);
Status NotSupported(std::string_view component, std::string_view what);

// Whether text becomes bytes: ByteLevel is the pre_tokenizer, or in its Sequence.
bool HasByteLevel(const nlohmann::json& pre_tokenizer);
// Whether the normalizer of a byte-level file is NFC; a Sequence of nothing is none.
// kInvalidArgument for others.
StatusOr<bool> ReadNfc(const nlohmann::json& normalizer);

// The patterns that text is split by before it becomes bytes.
StatusOr<std::vector<std::string>> ReadSplits(const nlohmann::json& pre_tokenizer);
// What becomes of text of a file whose pre_tokenizer has no ByteLevel; kInvalidArgument for what is
// not supported, and for rules by which a text would grow without bound.
StatusOr<TextRules> ReadTextRules(const nlohmann::json& root);

}  // namespace mt::data
