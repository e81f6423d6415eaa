// Files of tokenizers, damaged and hostile: each is refused with a reason or read, and what was
// read encodes and decodes. A crash, undefined behaviour (the sanitizers' builds run this too) or
// memory beyond the size of the text is a defect. MT_LONG_TESTS: forty times as many.
#include <algorithm>
#include <cstdlib>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/sanitized.h"
#include "tests/worker/checkpoint/fuzz_mutator.h"
#include "tests/worker/data/tokenizer/golden_files.h"
#include "worker/data/tokenizer/bpe_tokenizer.h"
#include "worker/data/tokenizer/gpt2_files.h"
#include "worker/data/tokenizer/hf_file.h"
#include "worker/data/tokenizer/record.h"

namespace mt::data {
namespace {

// A tokenizer.json of 256 bytes and few merges, so that a change often meets something.
std::string SmallHf(size_t merges) {
  auto root = nlohmann::ordered_json::parse(Golden("llama3.json"));
  auto& list = root["model"]["merges"];
  while (list.size() > merges) list.erase(list.size() - 1);
  return root.dump();
}

void Use(StatusOr<BpeParts> parts) {
  if (!parts.ok()) {
    EXPECT_FALSE(parts.status().message().empty());
    return;
  }
  const auto tokenizer = MakeBpeTokenizer(*std::move(parts));
  if (!tokenizer.ok()) return;
  constexpr std::string_view kText =
      "The quick brown fox's 12345 \xE4\xB8\xAD\xFF<|end_of_text|>\n\n";
  std::vector<int32_t> ids;
  if (!(*tokenizer)->Encode(kText, &ids).ok()) return;  // a pattern may run out of its limits
  const auto decoded = (*tokenizer)->Decode(ids);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(*decoded, kText);
}

int Count() {
  const int more = std::getenv("MT_LONG_TESTS") != nullptr ? 40 : 1;
  return (kSanitized ? 200 : 600) * more;
}

TEST(TokenizerFuzzTest, HfFiles) {
  const std::vector<std::string> texts = {SmallHf(20), SmallHf(0)};
  checkpoint::Mutator mutator(1);
  for (int i = 0; i < Count() && !HasFailure(); ++i) {
    const std::string text = mutator.Mutate(texts[mutator.Below(2)], texts[mutator.Below(2)]);
    Use(ParseHfFile(text));
    EXPECT_FALSE(HasFailure()) << "text " << i;
  }
}

// Without the vocabulary, where most changes of the whole file fall.
TEST(TokenizerFuzzTest, ComponentsOfHfFiles) {
  const auto root = nlohmann::ordered_json::parse(SmallHf(20));
  auto shell = root;
  shell["model"]["vocab"] = 0;
  constexpr std::string_view kNoVocab = R"("vocab":0)";
  const std::string vocab = R"("vocab":)" + root["model"]["vocab"].dump();
  checkpoint::Mutator mutator(2);
  for (int i = 0; i < Count() && !HasFailure(); ++i) {
    const std::string text = mutator.Mutate(shell.dump(), shell.dump());
    const size_t at = text.find(kNoVocab);
    if (at == std::string::npos) continue;
    Use(ParseHfFile(std::string(text).replace(at, kNoVocab.size(), vocab)));
    EXPECT_FALSE(HasFailure()) << "text " << i << ": " << text.substr(0, 2000);
  }
}

TEST(TokenizerFuzzTest, Gpt2Files) {
  const std::string vocab = Golden("gpt2_vocab.json");
  const std::string merges = Golden("gpt2_merges.txt");
  checkpoint::Mutator mutator(3);
  for (int i = 0; i < Count() && !HasFailure(); ++i) {
    const bool first = i % 2 == 0;
    Use(ParseGpt2Files(first ? mutator.Mutate(vocab, merges) : vocab,
                       first ? merges : mutator.Mutate(merges, vocab)));
    EXPECT_FALSE(HasFailure()) << "text " << i;
  }
}

TEST(TokenizerFuzzTest, Records) {
  const std::string text =
      ToJson({.type = "hf", .digest = std::string(32, 'a'), .vocab_size = 257, .eod = 256});
  checkpoint::Mutator mutator(4);
  for (int i = 0; i < 20 * Count() && !HasFailure(); ++i) {
    const auto record = ParseTokenizerRecord(mutator.Mutate(text, text));
    if (!record.ok()) continue;
    EXPECT_EQ(*ParseTokenizerRecord(ToJson(*record)), *record);
    EXPECT_LT(record->eod, record->vocab_size);
  }
}

TEST(TokenizerFuzzTest, DeepNestingIsRead) {
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  Use(ParseHfFile(deep));
  Use(ParseHfFile(R"({"model": {"type": "BPE", "vocab": {}}, "pre_tokenizer": )" + deep + "}"));
  Use(ParseGpt2Files(deep, ""));
}

}  // namespace
}  // namespace mt::data
