// The reader of .idx files, given damaged and hostile ones: each is refused with a reason or read,
// and what was read can be used to its last token. A crash, undefined behaviour (the sanitizers'
// builds run this too) or a hang is a defect. How many: tests/fuzz_time.h.
#include <cstring>
#include <limits>
#include <random>
#include <sys/mman.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "tests/fuzz_time.h"
#include "tests/worker/data/fuzz_corpus.h"
#include "tests/worker/data/temp_data.h"
#include "worker/data/indexed_dataset.h"

namespace mt::data {
namespace {

// A file that is nowhere.
StatusOr<base::Fd> FileWith(std::string_view bytes) {
  base::Fd fd(::memfd_create("fuzz", MFD_CLOEXEC));
  if (!fd || ::write(fd.get(), bytes.data(), bytes.size()) != std::ssize(bytes))
    return base::Internal("no file in memory");
  return fd;
}

// Reads every token; false where the pair was refused.
bool ReadHostile(const std::string& idx, const std::string& bin) {
  const auto open = [&](const std::string& path) {
    return FileWith(path.ends_with(".idx") ? idx : bin);
  };
  const auto data = IndexedDataset::Open("fuzz", open);
  if (!data.ok()) {
    const bool explained =
        absl::IsDataLoss(data.status()) || absl::IsInvalidArgument(data.status());
    EXPECT_TRUE(explained) << data.status();
    EXPECT_GT(base::Message(data.status()).size(), 10U);
    return false;
  }
  int64_t tokens = 0;
  for (int64_t i = 0; i < (*data)->num_sequences(); ++i) {
    std::vector<int32_t> ids(static_cast<size_t>((*data)->length(i)));
    const Status status = (*data)->Read(i, 0, int64_t{1} << 31, ids);
    EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status)) << status;
    tokens += std::ssize(ids);
    EXPECT_EQ((*data)->SequenceBytes(i).size(), ids.size() * SizeOf((*data)->token_type()));
  }
  EXPECT_EQ(tokens, (*data)->num_tokens());
  EXPECT_EQ((*data)->document_begin((*data)->num_documents()), (*data)->num_sequences());
  return true;
}

class Damage {
 public:
  explicit Damage(uint64_t seed) : random_(seed) {}
  std::string Apply(std::string bytes) {
    for (size_t changes = 1 + Below(3); changes > 0; --changes) Change(&bytes);
    return bytes;
  }

 private:
  size_t Below(size_t count) { return static_cast<size_t>(random_() % count); }
  template <class T>
  void Put(std::string* bytes, size_t at, T value) {
    if (at + sizeof(T) <= bytes->size()) std::memcpy(bytes->data() + at, &value, sizeof(T));
  }
  void Change(std::string* bytes) {
    constexpr uint64_t kEnds[] = {0,
                                  1,
                                  2,
                                  std::numeric_limits<int32_t>::max(),
                                  std::numeric_limits<uint32_t>::max(),
                                  std::numeric_limits<int64_t>::max(),
                                  std::numeric_limits<uint64_t>::max(),
                                  uint64_t{1} << 61};
    const size_t at = Below(bytes->size() + 1);
    switch (Below(6)) {
      case 0:
        Put(bytes, at, static_cast<uint8_t>(random_()));
        break;
      case 1:
        bytes->resize(at);
        break;
      case 2:
        bytes->insert(at, Below(30), '\0');
        break;
      case 3:
        Put(bytes, 34 + 4 * Below(8), static_cast<uint32_t>(kEnds[Below(std::size(kEnds))]));
        break;
      case 4:
        Put(bytes, 18 + 8 * Below(2), kEnds[Below(std::size(kEnds))]);
        break;
      default:
        Put(bytes, 34 + 4 * Below(40), kEnds[Below(std::size(kEnds))]);
    }
  }

  std::mt19937_64 random_;
};

// Fourteen ids in five sequences.
std::pair<std::string, std::string> SmallPair(TokenType type) {
  const TempDir dir;
  WriteDataset(dir.Path("d"), {3, 0, 9, 1, 1}, type, [](int64_t, int64_t t) { return t; });
  return {ReadText(dir.Path("d.idx")), ReadText(dir.Path("d.bin"))};
}

TEST(IdxFuzzTest, TheCorpusIsRefusedOrRead) {
  const std::string bin = SmallPair(TokenType::kU16).second;
  for (const CorpusInput& input : Corpus("idx")) {
    const bool read = ReadHostile(input.bytes, bin);
    EXPECT_TRUE(read || input.name != "whole.hex");
    EXPECT_FALSE(HasFailure()) << input.name;
  }
}

TEST(IdxFuzzTest, DamagedFilesAreRefusedOrRead) {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const TokenType type : {TokenType::kU8, TokenType::kU16, TokenType::kI64}) {
    pairs.push_back(SmallPair(type));
    ASSERT_TRUE(ReadHostile(pairs.back().first, pairs.back().second));
  }
  const std::string bin = pairs[1].second;
  for (CorpusInput& input : Corpus("idx")) pairs.emplace_back(std::move(input.bytes), bin);
  FuzzTime time(20'000, 5);
  Damage damage(time.seed());
  int64_t read = 0;
  while (time.Next()) {
    // Half of them of the whole pairs.
    const size_t turn = static_cast<size_t>(time.round());
    const auto& [idx, tokens] = pairs[turn % 2 == 0 ? turn / 2 % 3 : turn / 2 % pairs.size()];
    read += ReadHostile(damage.Apply(idx), tokens.substr(0, tokens.size() - turn / 2 % 2)) ? 1 : 0;
  }
  EXPECT_TRUE(read > 0 || time.round() < 100) << "damage that no reader can see must be among it";
}

}  // namespace
}  // namespace mt::data
