// Shards of other trainers, damaged and hostile: each is refused with a reason and leaves no data
// set, or becomes one that is whole. A crash or undefined behaviour (the sanitizers' builds run
// this too) is a defect. How many: tests/fuzz_time.h.
#include <cstring>
#include <random>

#include <gtest/gtest.h>

#include "tests/fuzz_time.h"
#include "tests/worker/data/fuzz_corpus.h"
#include "tests/worker/data/temp_data.h"
#include "worker/data/indexed_dataset.h"
#include "worker/data/token_files/import_shards.h"

namespace mt::data {
namespace {

class ShardFuzzTest : public ::testing::Test {
 protected:
  // True where it became a data set.
  bool ImportHostile(const std::string& bytes, ImportArgs args) {
    WriteText(dir_.Path("shard"), bytes);
    args.inputs = {dir_.Path("shard")};
    args.output = dir_.Path("d");
    args.overwrite = true;
    const auto written = ImportShards(args);
    if (!written.ok()) {
      const absl::StatusCode code = written.status().code();
      EXPECT_TRUE(code == absl::StatusCode::kDataLoss || code == absl::StatusCode::kInvalidArgument)
          << written.status();
      EXPECT_GT(base::Message(written.status()).size(), 10U);
      for (const std::string& name : dir_.Files())
        EXPECT_EQ(name.find(".tmp."), std::string::npos) << name << " is left";
      return false;
    }
    const auto data = IndexedDataset::Open(written->prefix);
    EXPECT_TRUE(data.ok()) << data.status();
    if (!data.ok()) return false;
    EXPECT_EQ((*data)->num_tokens(), written->tokens);
    EXPECT_EQ((*data)->num_sequences(), written->sequences);
    EXPECT_GT(written->tokens, 0);
    return true;
  }

  const TempDir dir_;
};

// Changes a byte, cuts, doubles a part, or puts a number into the header.
std::string DamagedShard(std::string bytes, std::mt19937_64* random) {
  const auto below = [&](size_t count) { return static_cast<size_t>((*random)() % count); };
  for (size_t changes = 1 + below(3); changes > 0; --changes) {
    const size_t at = below(bytes.size() + 1);
    switch (below(4)) {
      case 0:
        if (at < bytes.size()) bytes[at] = static_cast<char>((*random)());
        break;
      case 1:
        bytes.resize(at);
        break;
      case 2:
        bytes.insert(at, bytes.substr(at, below(9)));
        break;
      default: {
        constexpr int32_t kNumbers[] = {20240520,   20240801,    0,          1,           7, -1,
                                        2147483647, -2147483648, 1073741824, -1073741824, 3, 4};
        const int32_t value = kNumbers[below(std::size(kNumbers))];
        const size_t field = 4 * below(3);
        if (field + sizeof(value) <= bytes.size())
          std::memcpy(bytes.data() + field, &value, sizeof(value));
      }
    }
  }
  return bytes;
}

TEST_F(ShardFuzzTest, DamagedShardsAreRefusedOrRead) {
  std::vector<std::string> shards;
  for (CorpusInput& input : Corpus("shards")) {
    const bool read = ImportHostile(input.bytes, {.eod = 2});
    EXPECT_EQ(read, input.name == "llmc_u16.hex") << input.name;
    shards.push_back(std::move(input.bytes));
  }
  FuzzTime time(300, 8);
  std::mt19937_64 random(time.seed());
  int64_t read = 0;
  while (time.Next()) {
    const ImportArgs args = {.raw_type = random() % 2 == 0 ? TokenType::kU16 : TokenType::kI32,
                             .eod = static_cast<int64_t>(random() % 4) - 1,
                             .eod_begins = random() % 2 == 0,
                             .vocab_size = random() % 2 == 0 ? 0 : 300};
    read += ImportHostile(DamagedShard(shards[random() % shards.size()], &random), args) ? 1 : 0;
  }
  EXPECT_TRUE(read > 0 || time.round() < 100) << "damage that no reader can see must be among it";
}

}  // namespace
}  // namespace mt::data
