// .idx and .bin files: exact bytes, round trips in every integer type, and files that are missing,
// truncated or damaged.
#include "worker/data/indexed_dataset.h"

#include <cstring>
#include <fstream>
#include <limits>
#include <numeric>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "common/base/files.h"
#include "common/base/ids.h"
#include "tests/worker/data/temp_data.h"

namespace mt::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int32_t> ReadAll(const IndexedDataset& data, int64_t sequence, int64_t vocab_size) {
  std::vector<int32_t> tokens(static_cast<size_t>(data.length(sequence)));
  const Status status = data.Read(sequence, 0, vocab_size, tokens);
  EXPECT_TRUE(status.ok()) << status;
  return tokens;
}

TEST(IndexedDatasetTest, WritesTheBytesOfTheFormat) {
  const TempDir dir;
  auto writer = *IndexedDatasetWriter::Create(dir.Path("d"), TokenType::kU16);
  ASSERT_TRUE(writer->AddSequence(std::vector<int32_t>{1, 2, 65499}).ok());
  writer->EndDocument();
  writer->EndDocument();  // an empty document
  ASSERT_TRUE(writer->AddSequence(std::vector<int32_t>{256}).ok());
  ASSERT_TRUE(writer->AddSequence(std::vector<int32_t>{7, 8}).ok());
  writer->EndDocument();
  ASSERT_TRUE(writer->Finish().ok());

  EXPECT_EQ(ReadText(dir.Path("d.bin")), std::string("\x01\0\x02\0\xDB\xFF\0\x01\x07\0\x08\0", 12));
  std::string idx("MMIDIDX\0\0", 9);
  const auto put = [&](auto value) {
    idx.append(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  put(uint64_t{1});
  put(uint8_t{8});
  put(uint64_t{3});
  put(uint64_t{4});
  for (const int32_t length : {3, 1, 2}) put(length);
  for (const int64_t offset : {0, 6, 8}) put(offset);
  for (const int64_t document : {0, 1, 1, 3}) put(document);
  EXPECT_EQ(ReadText(dir.Path("d.idx")), idx);
  EXPECT_THAT(dir.Files(), ElementsAre("d.bin", "d.idx"));
}

TEST(IndexedDatasetTest, ReadsBackEveryIntegerType) {
  const TempDir dir;
  for (const TokenType type : {TokenType::kU8, TokenType::kI8, TokenType::kI16, TokenType::kI32,
                               TokenType::kI64, TokenType::kU16}) {
    const std::string prefix = dir.Path(Name(type));
    WriteDataset(prefix, {5, 0, 100}, type,
                 [](int64_t i, int64_t t) { return static_cast<int32_t>((i * 31 + t) % 128); });
    const auto data = IndexedDataset::Open(prefix);
    ASSERT_TRUE(data.ok()) << data.status();
    EXPECT_EQ((*data)->token_type(), type);
    EXPECT_EQ((*data)->num_tokens(), 105);
    EXPECT_EQ((*data)->num_documents(), 3);
    EXPECT_EQ((*data)->max_length(), 100);
    EXPECT_THAT(ReadAll(**data, 0, 128), ElementsAre(0, 1, 2, 3, 4));
    EXPECT_TRUE(ReadAll(**data, 1, 128).empty());
    std::vector<int32_t> middle(3);
    ASSERT_TRUE((*data)->Read(2, 97, 128, middle).ok());
    EXPECT_THAT(middle, ElementsAre((62 + 97) % 128, (62 + 98) % 128, (62 + 99) % 128));
  }
}

TEST(IndexedDatasetTest, ChoosesTheTypeAsMegatronDoes) {
  EXPECT_EQ(TokenTypeForVocab(257), TokenType::kU16);
  EXPECT_EQ(TokenTypeForVocab(65499), TokenType::kU16);
  EXPECT_EQ(TokenTypeForVocab(65500), TokenType::kI32);
}

TEST(IndexedDatasetTest, WriterRefusesTokensThatDoNotFit) {
  const TempDir dir;
  auto writer = *IndexedDatasetWriter::Create(dir.Path("d"), TokenType::kU16);
  for (const int32_t token : {65536, -1}) {
    const Status status = writer->AddSequence(std::vector<int32_t>{1, token});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(base::Message(status), HasSubstr(std::to_string(token) + " does not fit u16"));
  }
  writer.reset();
  EXPECT_TRUE(dir.Files().empty()) << "an unfinished writer leaves nothing";
}

TEST(IndexedDatasetTest, WriterReplacesAnOldPair) {
  const TempDir dir;
  NumberedDataset(dir.Path("d"), {3, 4});
  const auto data = NumberedDataset(dir.Path("d"), {2});
  EXPECT_EQ(data->num_tokens(), 2);
  EXPECT_THAT(dir.Files(), ElementsAre("d.bin", "d.idx"));
}

TEST(IndexedDatasetTest, NamesTheTokenOutsideTheVocabulary) {
  const TempDir dir;
  WriteDataset(dir.Path("d"), {4, 6}, TokenType::kU16, [](int64_t i, int64_t t) {
    return i == 1 && t == 2 ? 300 : static_cast<int32_t>(t);
  });
  const auto data = *IndexedDataset::Open(dir.Path("d"));
  std::vector<int32_t> tokens(5);
  EXPECT_TRUE(data->Read(1, 1, 301, tokens).ok());
  const Status status = data->Read(1, 1, 257, tokens);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(base::Message(status),
              HasSubstr("d.bin: token 6 has id 300, outside the vocabulary of 257"));
}

TEST(IndexedDatasetTest, RefusesNegativeAndHugeIds) {
  const TempDir dir;
  WriteDataset(dir.Path("n"), {3}, TokenType::kI8,
               [](int64_t, int64_t t) { return static_cast<int32_t>(-t); });
  std::vector<int32_t> tokens(3);
  EXPECT_THAT(base::Message((*IndexedDataset::Open(dir.Path("n")))->Read(0, 0, 1000, tokens)),
              HasSubstr("token 1 has id -1"));
  WriteDataset(dir.Path("h"), {3}, TokenType::kI64, [](int64_t, int64_t) { return 1; });
  std::string bin = ReadText(dir.Path("h.bin"));
  bin[8 + 4] = 1;  // the second id becomes 2^32 + 1, which an i32 would show as 1
  WriteText(dir.Path("h.bin"), bin);
  EXPECT_THAT(base::Message((*IndexedDataset::Open(dir.Path("h")))
                                ->Read(0, 0, std::numeric_limits<int64_t>::max(), tokens)),
              HasSubstr("token 1 has id 4294967297"));
}

TEST(IndexedDatasetTest, MissingFilesAreNamed) {
  const TempDir dir;
  NumberedDataset(dir.Path("d"), {3});
  auto opened = IndexedDataset::Open(dir.Path("absent"));
  EXPECT_EQ(opened.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(base::Message(opened.status()), HasSubstr("absent.idx: no such file"));
  std::filesystem::remove(dir.Path("d.bin"));
  opened = IndexedDataset::Open(dir.Path("d"));
  EXPECT_EQ(opened.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(base::Message(opened.status()), HasSubstr("d.bin: no such file"));
}

struct Damage {
  const char* what;
  size_t at;
  std::string bytes;
  const char* message;
};

// N = 2, D = 3: lengths at 34, offsets at 42, documents at 58; 82 bytes.
TEST(IndexedDatasetTest, DamageIsExplained) {
  const TempDir dir;
  NumberedDataset(dir.Path("d"), {3, 4});
  const std::string good = ReadText(dir.Path("d.idx"));
  ASSERT_EQ(good.size(), 82U);
  const auto i64 = [](int64_t value) {
    return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  const std::vector<Damage> cases = {
      {"magic", 0, "X", "not a Megatron .idx"},
      {"version", 9, std::string(1, '\2'), "version 2"},
      {"float type", 17, std::string(1, '\6'), "code 6 is not an integer type"},
      {"huge N", 18, i64(-1), "do not fit its header"},
      {"huge D", 26, i64(-1), "do not fit its header"},
      {"negative length", 34, std::string(4, '\xFF'), "sequence 0 (-1 tokens"},
      {"overlap", 50, i64(8), "sequence 1 (4 tokens at byte 8"},
      {"misaligned", 50, i64(13), "sequence 1 (4 tokens at byte 13"},
      {"far offset", 50, i64(int64_t{1} << 62), "truncated, or the two files do not belong"},
      {"beyond the end", 50, i64(16), "truncated, or the two files do not belong"},
      {"first document", 58, i64(1), "document 0 starts at sequence 1"},
      {"falling documents", 66, i64(-5), "document 1 starts at sequence -5"},
      {"document beyond N", 66, i64(3), "document 1 starts at sequence 3"},
      {"last document", 74, i64(1), "last document entry is 1"},
  };
  for (const Damage& damage : cases) {
    std::string bad = good;
    bad.replace(damage.at, damage.bytes.size(), damage.bytes);
    WriteText(dir.Path("d.idx"), bad);
    const auto opened = IndexedDataset::Open(dir.Path("d"));
    ASSERT_FALSE(opened.ok()) << damage.what;
    EXPECT_THAT(base::Message(opened.status()), HasSubstr(damage.message)) << damage.what;
    EXPECT_THAT(base::Message(opened.status()), HasSubstr(dir.path())) << damage.what;
  }
  WriteText(dir.Path("d.idx"), good + "ab");
  EXPECT_THAT(base::Message(IndexedDataset::Open(dir.Path("d")).status()), HasSubstr("multimodal"));
}

// Read as they are, ids of 4 bytes under an .idx of 2 would be twice as many, every second one 0.
TEST(IndexedDatasetTest, IdsOfAnotherWidthAreRefusedAndALongerFileIsSaid) {
  const TempDir dir;
  const std::string prefix = dir.Path("d");
  auto writer = *IndexedDatasetWriter::Create(prefix, TokenType::kU16);
  ASSERT_TRUE(writer->AddSequence(std::vector<int32_t>{1, 2, 3, 4, 5, 6, 7}).ok());
  writer->EndDocument();
  ASSERT_TRUE(writer->Finish().ok());
  const std::string bin = ReadText(prefix + ".bin");
  ASSERT_EQ(bin.size(), 14U);
  for (const size_t width : {4, 8}) {
    WriteText(prefix + ".bin", std::string(7 * width, '\1'));
    const Status status = IndexedDataset::Open(prefix).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_THAT(base::Message(status),
                AllOf(HasSubstr("d.bin: "), HasSubstr("names 7 tokens of 2 bytes, which are 14"),
                      HasSubstr(fmt::format("tokens of {} bytes would fill it", width))));
  }
  WriteText(prefix + ".bin", bin + "abc");
  testing::internal::CaptureStderr();
  const auto longer = IndexedDataset::Open(prefix);
  const std::string log = testing::internal::GetCapturedStderr();
  ASSERT_TRUE(longer.ok()) << longer.status();
  EXPECT_EQ((*longer)->num_tokens(), 7);
  EXPECT_THAT(log, AllOf(HasSubstr("longer than its .idx names"), HasSubstr("bytes=17 named=14")));
}

// Opens a damaged pair; where that succeeds, every token must be readable without leaving the
// files.
void OpenAndReadEverything(const std::string& prefix) {
  const auto data = IndexedDataset::Open(prefix);
  if (!data.ok()) {
    EXPECT_FALSE(data.status().message().empty());
    return;
  }
  int64_t tokens = 0;
  for (int64_t i = 0; i < (*data)->num_sequences(); ++i) {
    std::vector<int32_t> out(static_cast<size_t>((*data)->length(i)));
    tokens += static_cast<int64_t>(out.size());
    (void)(*data)->Read(i, 0, 1 << 20, out);
  }
  EXPECT_EQ(tokens, (*data)->num_tokens());
}

TEST(IndexedDatasetTest, NoDamageCrashes) {
  const TempDir dir;
  NumberedDataset(dir.Path("good"), {3, 0, 4, 1});
  const std::string idx = ReadText(dir.Path("good.idx"));
  const std::string bin = ReadText(dir.Path("good.bin"));
  const std::string prefix = dir.Path("bad");
  WriteText(prefix + ".bin", bin);
  for (size_t at = 0; at < idx.size(); ++at) {
    for (const unsigned flip : {0x01U, 0x10U, 0x80U, 0xFFU}) {
      std::string bad = idx;
      bad[at] = static_cast<char>(static_cast<unsigned char>(bad[at]) ^ flip);
      WriteText(prefix + ".idx", bad);
      OpenAndReadEverything(prefix);
    }
    WriteText(prefix + ".idx", idx.substr(0, at));
    EXPECT_FALSE(IndexedDataset::Open(prefix).ok()) << "truncated at " << at;
  }
  WriteText(prefix + ".idx", idx);
  for (size_t at = 0; at < bin.size(); ++at) {
    WriteText(prefix + ".bin", bin.substr(0, at));
    const auto opened = IndexedDataset::Open(prefix);
    ASSERT_FALSE(opened.ok()) << "truncated at " << at;
    EXPECT_EQ(opened.status().code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(base::Message(opened.status()), HasSubstr("bad.bin: "));
  }
}

// The rule of FORMAT.md, by hand: which bytes are in the sample, and which are not.
TEST(IndexedDatasetTest, TheSampleOfTheBinIsSpreadOverIt) {
  constexpr int kTokens = 1'000'000;  // of 4 bytes
  const TempDir dir;
  NumberedDataset(dir.Path("d"), {kTokens});
  const auto digest = [&] {
    const auto opened = IndexedDataset::Open(dir.Path("d"));
    EXPECT_TRUE(opened.ok()) << opened.status();
    return opened.ok() ? (*opened)->bin_digest() : "";
  };
  const auto flip = [&](int64_t at) {
    std::fstream file(dir.Path("d.bin"), std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(at);
    const char byte = static_cast<char>(file.get() ^ 1);
    file.seekp(at);
    file.put(byte);
  };
  const std::string bytes = *base::ReadFile(dir.Path("d.bin"));
  const int64_t size = static_cast<int64_t>(bytes.size());
  ASSERT_EQ(size, 4 * kTokens);
  std::string sample(8, '\0');
  for (int i = 0; i < 8; ++i) sample[i] = static_cast<char>(size >> (8 * i));
  for (int64_t i = 0; i < 64; ++i) sample += bytes.substr(i * (size - 16'384) / 63, 16'384);
  const std::string before = digest();
  EXPECT_EQ(before, base::Hash128Hex(sample));
  for (const int64_t at : {int64_t{0}, size - 1, 5 * (size - 16'384) / 63}) {
    flip(at);
    EXPECT_NE(digest(), before) << at;
    flip(at);
  }
  flip(20'000);
  EXPECT_EQ(digest(), before) << "between two blocks";
}

}  // namespace
}  // namespace mt::data
