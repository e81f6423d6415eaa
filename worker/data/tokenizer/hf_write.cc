// HfFileText of hf_file.h: the tokenizer.json of a vocabulary and its merges, member for member and
// blank for blank as the tokenizers library saves it, so that files can be compared as they are.
#include <string_view>
#include <unordered_map>
#include <utility>

#include <nlohmann/json.hpp>

#include "worker/data/tokenizer/byte_alphabet.h"
#include "worker/data/tokenizer/fast_splitters.h"
#include "worker/data/tokenizer/hf_file.h"

namespace mt::data {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson ByteLevelJson(bool add_prefix_space, bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", add_prefix_space},
          {"trim_offsets", true},
          {"use_regex", use_regex}};
}

// The library's decoder says that it adds a prefix space, which it never reads.
OrderedJson DecoderJson() { return ByteLevelJson(/*add_prefix_space=*/true, /*use_regex=*/true); }

OrderedJson PreTokenizerJson(const std::string& pattern) {
  if (pattern == kGpt2Pattern) return ByteLevelJson(/*add_prefix_space=*/false, /*use_regex=*/true);
  const OrderedJson split = {{"type", "Split"},
                             {"pattern", {{"Regex", pattern}}},
                             {"behavior", "Isolated"},
                             {"invert", false}};
  const OrderedJson bytes = ByteLevelJson(/*add_prefix_space=*/false, /*use_regex=*/false);
  return {{"type", "Sequence"}, {"pretokenizers", OrderedJson::array({split, bytes})}};
}

OrderedJson AddedJson(const std::vector<NamedToken>& named) {
  OrderedJson added = OrderedJson::array();
  for (const NamedToken& token : named) {
    added.push_back({{"id", token.id},
                     {"content", token.text},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  return added;
}

// Added tokens are written as they are, others as the byte alphabet spells them.
OrderedJson VocabJson(const BpeParts& parts) {
  std::unordered_map<size_t, std::string_view> named;
  for (const NamedToken& token : parts.named)
    named.emplace(static_cast<size_t>(token.id), token.text);
  OrderedJson vocab = OrderedJson::object();
  auto& members = vocab.get_ref<OrderedJson::object_t&>();
  const std::vector<std::string>& tokens = parts.tables.tokens;
  for (size_t id = 0; id < tokens.size(); ++id) {
    // push_back: an ordered object looks for the key among all others otherwise.
    const auto found = named.find(id);
    if (found != named.end()) {
      members.push_back({std::string(found->second), id});
    } else if (!tokens[id].empty()) {
      members.push_back({AlphabetOfBytes(tokens[id]), id});
    }
  }
  return vocab;
}

OrderedJson MergesJson(const BpeTables& tables) {
  OrderedJson merges = OrderedJson::array();
  for (const BpeMerge& merge : tables.merges) {
    merges.push_back({AlphabetOfBytes(tables.tokens[static_cast<size_t>(merge.left)]),
                      AlphabetOfBytes(tables.tokens[static_cast<size_t>(merge.right)])});
  }
  return merges;
}

}  // namespace

std::string HfFileText(const BpeParts& parts) {
  const OrderedJson root = {{"version", "1.0"},
                            {"truncation", nullptr},
                            {"padding", nullptr},
                            {"added_tokens", AddedJson(parts.named)},
                            {"normalizer", nullptr},
                            {"pre_tokenizer", PreTokenizerJson(parts.patterns.front())},
                            {"post_processor", nullptr},
                            {"decoder", DecoderJson()},
                            {"model",
                             {{"type", "BPE"},
                              {"dropout", nullptr},
                              {"unk_token", nullptr},
                              {"continuing_subword_prefix", nullptr},
                              {"end_of_word_suffix", nullptr},
                              {"fuse_unk", false},
                              {"byte_fallback", false},
                              {"ignore_merges", parts.tables.ignore_merges},
                              {"vocab", VocabJson(parts)},
                              {"merges", MergesJson(parts.tables)}}}};
  return root.dump(2);
}

}  // namespace mt::data
