// Files of tokenizers, damaged and hostile: each is refused with a reason or read, and what was
// read encodes and decodes. A crash, undefined behaviour (the sanitizers' builds run this too) or
// memory beyond the size of the text is a defect. How many: tests/fuzz_time.h.
#include <algorithm>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/fuzz_time.h"
#include "tests/worker/checkpoint/fuzz_mutator.h"
#include "tests/worker/data/fuzz_corpus.h"
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
  // Of others a text does not come back as it was.
  const bool exact =
      !parts->text && !parts->nfc && std::ranges::none_of(parts->named, [](const auto& token) {
        return token.lstrip || token.rstrip;
      });
  const auto tokenizer = MakeBpeTokenizer(*std::move(parts));
  if (!tokenizer.ok()) return;
  constexpr std::string_view kText =
      "The quick brown fox's 12345 e\xCC\x81 \xE4\xB8\xAD\xFF<|end_of_text|>\n\n";
  std::vector<int32_t> ids;
  if (!(*tokenizer)->Encode(kText, &ids).ok()) return;  // a pattern may run out of its limits
  const auto decoded = (*tokenizer)->Decode(ids);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_TRUE(!exact || *decoded == kText) << *decoded;
}

constexpr int64_t kTexts = 600;

TEST(TokenizerFuzzTest, HfFiles) {
  const std::vector<std::string> texts = {SmallHf(20), SmallHf(0)};
  FuzzTime time(kTexts, 1);
  checkpoint::Mutator mutator(time.seed());
  while (time.Next())
    Use(ParseHfFile(mutator.Mutate(texts[mutator.Below(2)], texts[mutator.Below(2)])));
}

// Without the vocabulary, where most changes of the whole file fall.
void FuzzComponents(const std::string& file, const std::vector<CorpusInput>& corpus,
                    uint64_t seed) {
  constexpr std::string_view kNoVocab = R"("vocab":0)";
  const auto root = nlohmann::ordered_json::parse(file);
  const std::string vocab = R"("vocab":)" + root["model"]["vocab"].dump();
  const auto read = [&](const std::string& text) {
    const size_t at = text.find(kNoVocab);
    if (at == std::string::npos) return;
    Use(ParseHfFile(std::string(text).replace(at, kNoVocab.size(), vocab)));
    EXPECT_FALSE(::testing::Test::HasFailure()) << text.substr(0, 2000);
  };
  auto shell = root;
  shell["model"]["vocab"] = 0;
  std::vector<std::string> texts = {shell.dump()};
  for (const CorpusInput& input : corpus) {
    read(input.bytes);
    EXPECT_FALSE(::testing::Test::HasFailure()) << input.name;
    texts.push_back(input.bytes);
  }
  FuzzTime time(kTexts, seed);
  checkpoint::Mutator mutator(time.seed());
  while (time.Next())
    read(mutator.Mutate(texts[mutator.Below(texts.size())], texts[mutator.Below(texts.size())]));
}

TEST(TokenizerFuzzTest, ComponentsOfHfFiles) {
  FuzzComponents(SmallHf(20), Corpus("tokenizer_hf"), 2);
}

TEST(TokenizerFuzzTest, ComponentsOfLlama2Files) { FuzzComponents(Golden("llama2.json"), {}, 5); }

TEST(TokenizerFuzzTest, Gpt2Files) {
  const std::string vocab = Golden("gpt2_vocab.json");
  const std::string merges = Golden("gpt2_merges.txt");
  FuzzTime time(kTexts, 3);
  checkpoint::Mutator mutator(time.seed());
  while (time.Next()) {
    const bool first = time.round() % 2 == 0;
    Use(ParseGpt2Files(first ? mutator.Mutate(vocab, merges) : vocab,
                       first ? merges : mutator.Mutate(merges, vocab)));
  }
}

TEST(TokenizerFuzzTest, Records) {
  const auto read = [](std::string_view text) {
    const auto record = ParseTokenizerRecord(text);
    if (!record.ok()) {
      EXPECT_TRUE(absl::IsDataLoss(record.status())) << record.status();
      return;
    }
    EXPECT_EQ(*ParseTokenizerRecord(ToJson(*record)), *record);
    EXPECT_LT(record->eod, record->vocab_size);
  };
  std::vector<std::string> texts = {
      ToJson({.type = "hf", .digest = std::string(32, 'a'), .vocab_size = 257, .eod = 256}),
      ToJson({.type = "hf", .vocab_size = 6, .eod = 5, .token_bytes = {1, 1, 1, 12, 3, 0}})};
  for (CorpusInput& input : Corpus("tokenizer_records")) {
    read(input.bytes);
    EXPECT_FALSE(HasFailure()) << input.name;
    texts.push_back(std::move(input.bytes));
  }
  FuzzTime time(20 * kTexts, 4);
  checkpoint::Mutator mutator(time.seed());
  while (time.Next())
    read(mutator.Mutate(texts[mutator.Below(texts.size())], texts[mutator.Below(texts.size())]));
}

TEST(TokenizerFuzzTest, DeepNestingIsRead) {
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  Use(ParseHfFile(deep));
  Use(ParseHfFile(R"({"model": {"type": "BPE", "vocab": {}}, "pre_tokenizer": )" + deep + "}"));
  Use(ParseGpt2Files(deep, ""));
}

}  // namespace
}  // namespace mt::data
