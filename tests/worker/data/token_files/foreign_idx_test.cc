// Pairs of .bin and .idx that other programs than Megatron write: DeepSpeed's, whose codes of types
// mean something else, and the empty one of a rank of datatrove without documents. The bytes are
// what DeepSpeed 0.19.8's MMapIndexedDatasetBuilder and datatrove 0.10.1's
// MegatronDocumentTokenizer wrote.
#include <array>
#include <cstring>

#include <gmock/gmock.h>

#include "tests/worker/data/temp_data.h"
#include "tests/worker/data/token_files/from_hex.h"
#include "worker/data/token_files/inspect.h"
#include "worker/data/token_files/rearrange.h"
#include "worker/data/token_files/verify.h"
#include "worker/data/tokenizer/record.h"

namespace mt::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Documents [1, 2] and [256, 40000, 7].
struct Golden {
  TokenType type;
  const char* idx;
  const char* bin;
};
constexpr Golden kDeepSpeed[] = {
    {TokenType::kU16,
     "4d4d49444944580000010000000000000006020000000000000003000000000000000200000003000000"
     "00000000000000000400000000000000000000000000000001000000000000000200000000000000",
     "010002000001409c0700"},
    {TokenType::kI32,
     "4d4d49444944580000010000000000000007020000000000000003000000000000000200000003000000"
     "00000000000000000800000000000000000000000000000001000000000000000200000000000000",
     "010000000200000000010000409c000007000000"},
    {TokenType::kI64,
     "4d4d49444944580000010000000000000008020000000000000003000000000000000200000003000000"
     "00000000000000001000000000000000000000000000000001000000000000000200000000000000",
     "010000000000000002000000000000000001000000000000409c0000000000000700000000000000"},
};
constexpr char kEmptyIdx[] =
    "4d4d49444944580000010000000000000008000000000000000001000000000000000000000000000000";

void WritePair(const std::string& prefix, const std::string& idx, const std::string& bin) {
  WriteText(prefix + ".idx", idx);
  WriteText(prefix + ".bin", bin);
}

// Every sequence; empty where the pair is refused.
std::vector<std::vector<int32_t>> SequencesOf(const std::string& prefix) {
  std::vector<std::vector<int32_t>> out;
  const auto data = IndexedDataset::Open(prefix);
  if (!data.ok()) return out;
  for (int64_t i = 0; i < (*data)->num_sequences(); ++i) {
    out.emplace_back(static_cast<size_t>((*data)->length(i)));
    (void)(*data)->Read(i, 0, 1 << 20, out.back());
  }
  return out;
}

std::string WhyRefused(const std::string& prefix) {
  const Status status = IndexedDataset::Open(prefix).status();
  EXPECT_TRUE(absl::IsDataLoss(status) || absl::IsInvalidArgument(status)) << status;
  return base::Message(status);
}

TEST(ForeignIdxTest, DeepSpeedsCodesAreToldBySizes) {
  const TempDir dir;
  for (const Golden& golden : kDeepSpeed) {
    WritePair(dir.Path("d"), FromHex(golden.idx), FromHex(golden.bin));
    const auto data = IndexedDataset::Open(dir.Path("d"));
    ASSERT_TRUE(data.ok()) << data.status();
    EXPECT_EQ((*data)->token_type(), golden.type);
    EXPECT_THAT(SequencesOf(dir.Path("d")),
                ElementsAre(ElementsAre(1, 2), ElementsAre(256, 40000, 7)));
    // What is made of it has Megatron's code.
    ASSERT_TRUE(
        MergeDatasets(
            {.inputs = {dir.Path("d"), dir.Path("d")}, .output = dir.Path("m"), .overwrite = true})
            .ok());
    EXPECT_EQ(ReadText(dir.Path("m.idx"))[17], static_cast<char>(golden.type));
    EXPECT_EQ(ReadText(dir.Path("m.bin")), FromHex(golden.bin) + FromHex(golden.bin));
  }
}

TEST(ForeignIdxTest, DeepSpeedsTruncatedPairsAreRefused) {
  const TempDir dir;
  for (const Golden& golden : kDeepSpeed) {
    const std::string bin = FromHex(golden.bin);
    for (size_t bytes = 0; bytes < bin.size(); ++bytes) {
      WritePair(dir.Path("d"), FromHex(golden.idx), bin.substr(0, bytes));
      EXPECT_NE(WhyRefused(dir.Path("d")), "") << bytes;
    }
  }
  // 22 bytes are what the same entries name as u16; the places are those of eights.
  for (const size_t bytes : {22, 39}) {
    WriteText(dir.Path("d.bin"), FromHex(kDeepSpeed[2].bin).substr(0, bytes));
    EXPECT_THAT(WhyRefused(dir.Path("d")), HasSubstr("places its 5 tokens as ids of 8 bytes"));
  }
  WritePair(dir.Path("d"), FromHex(kDeepSpeed[0].idx), std::string(11, '\1'));
  EXPECT_THAT(WhyRefused(dir.Path("d")),
              HasSubstr("code 6 is not an integer type (1 u8, 2 i8, 3 i16, 4 i32, 5 i64, 8 u16; "
                        "DeepSpeed's u16 is not what the 11 bytes of the .bin hold)"));
}

// Megatron's 6 and 7 are floats, of which the latter have u32's width.
TEST(ForeignIdxTest, FloatsAreNoIds) {
  const TempDir dir;
  const std::array<float, 5> floats = {1, 2, 256, 40000, 7};
  const std::array<double, 5> doubles = {1, 2, 256, 40000, 7};
  const auto bytes_of = [](const auto& values) {
    return std::string(reinterpret_cast<const char*>(values.data()), sizeof(values));
  };
  WritePair(dir.Path("d"), FromHex(kDeepSpeed[1].idx), bytes_of(floats));
  EXPECT_THAT(WhyRefused(dir.Path("d")), HasSubstr("code 7 is not an integer type"));
  std::string idx = FromHex(kDeepSpeed[2].idx);
  idx[17] = 6;
  WritePair(dir.Path("d"), idx, bytes_of(doubles));
  EXPECT_THAT(WhyRefused(dir.Path("d")), HasSubstr("code 6 is not an integer type"));
  idx[17] = 8;
  WritePair(dir.Path("d"), idx, bytes_of(doubles));
  EXPECT_THAT(WhyRefused(dir.Path("d")), HasSubstr("as ids of 8 bytes"));
}

TEST(ForeignIdxTest, NoDamageOfDeepSpeedsPairsCrashes) {
  const TempDir dir;
  for (const Golden& golden : kDeepSpeed) {
    const std::string idx = FromHex(golden.idx);
    WriteText(dir.Path("d.bin"), FromHex(golden.bin));
    for (size_t at = 0; at < idx.size(); ++at) {
      for (const unsigned flip : {0x01U, 0x02U, 0x80U, 0xFFU}) {
        std::string bad = idx;
        bad[at] = static_cast<char>(static_cast<unsigned char>(bad[at]) ^ flip);
        WriteText(dir.Path("d.idx"), bad);
        for (const auto& sequence : SequencesOf(dir.Path("d"))) EXPECT_LE(sequence.size(), 40U);
      }
    }
  }
}

TEST(ForeignIdxTest, AnEmptyPairIsReadAndLeftOutOfAMerge) {
  const TempDir dir;
  WritePair(dir.Path("none"), FromHex(kEmptyIdx), "");
  const auto data = IndexedDataset::Open(dir.Path("none"));
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ((*data)->num_documents(), 0);
  EXPECT_EQ((*data)->token_type(), TokenType::kU16);
  const auto inspected = Inspect({.prefix = dir.Path("none"), .samples = 3});
  ASSERT_TRUE(inspected.ok()) << inspected.status();
  EXPECT_EQ(inspected->tokens, 0);
  EXPECT_THAT(inspected->samples, IsEmpty());
  const auto verified = VerifyDataset({.prefix = dir.Path("none")});
  ASSERT_TRUE(verified.ok()) << verified.status();
  EXPECT_EQ(verified->largest_id, -1);

  NumberedDataset(dir.Path("a"), {3, 4});  // of i32, which the empty one is not
  const TokenizerRecord byte = {.type = "byte", .vocab_size = 257, .eod = 256};
  ASSERT_TRUE(WriteTokenizerRecord(dir.Path("a"), byte).ok());
  const auto merged =
      MergeDatasets({.inputs = {dir.Path("none"), dir.Path("a"), dir.Path("none"), dir.Path("a")},
                     .output = dir.Path("m")});
  ASSERT_TRUE(merged.ok()) << merged.status();
  EXPECT_EQ(merged->documents, 4);
  EXPECT_THAT(merged->notes, ElementsAre("left out, since without a document: " + dir.Path("none") +
                                         " and 1 more"));
  EXPECT_EQ(*ReadTokenizerRecord(dir.Path("m")), byte);
  const auto nothing = MergeDatasets({.inputs = {dir.Path("none")}, .output = dir.Path("n")});
  EXPECT_TRUE(absl::IsInvalidArgument(nothing.status()));
  EXPECT_THAT(base::Message(nothing.status()), HasSubstr("none of the 1 data sets has a document"));
  const auto parts =
      DivideDataset({.input = dir.Path("none"), .output = dir.Path("p"), .shares = {1}});
  EXPECT_THAT(base::Message(parts.status()), HasSubstr("would have none of its 0 documents"));
}

}  // namespace
}  // namespace mt::data
