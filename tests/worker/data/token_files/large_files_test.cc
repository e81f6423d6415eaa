// Token files beyond 4 GiB, whose .bin is holes but for its last ids: what our writers say of them
// is where they are. MT_LONG_TESTS: joined, divided and verified, with 10 GB of disk for a while.
#include <cstdlib>
#include <filesystem>
#include <limits>

#include <gmock/gmock.h>

#include "tests/worker/data/temp_data.h"
#include "worker/data/idx_writer.h"
#include "worker/data/output_file.h"
#include "worker/data/token_files/rearrange.h"
#include "worker/data/token_files/verify.h"

namespace mt::data {
namespace {

using ::testing::ElementsAre;

// A document for each length, ids of two bytes that are 0 but for the last three, which are 7,
// 8, 9.
void WriteHoles(const std::string& prefix, const std::vector<int32_t>& lengths) {
  const auto count = std::ssize(lengths);
  auto idx = IdxWriter::Create(
      prefix + ".idx",
      {.type = TokenType::kU16, .sequences = count, .document_entries = count + 1});
  ASSERT_TRUE(idx.ok()) << idx.status();
  int64_t tokens = 0;
  ASSERT_TRUE(idx->AddDocumentEntry(0).ok());
  for (int64_t i = 0; i < count; ++i) {
    const int32_t length = lengths[static_cast<size_t>(i)];
    ASSERT_TRUE(idx->AddSequence(length).ok());
    ASSERT_TRUE(idx->AddDocumentEntry(i + 1).ok());
    tokens += length;
  }
  ASSERT_TRUE(idx->Finish().ok());
  auto bin = OutputFile::Open(prefix + ".bin");
  ASSERT_TRUE(bin.ok()) << bin.status();
  ASSERT_TRUE(bin->WriteAt(2 * (tokens - 3), std::string_view("\7\0\10\0\11\0", 6)).ok());
}

std::vector<int32_t> LastIds(const std::string& prefix) {
  const auto data = IndexedDataset::Open(prefix);
  EXPECT_TRUE(data.ok()) << data.status();
  if (!data.ok()) return {};
  const int64_t last = (*data)->num_sequences() - 1;
  std::vector<int32_t> ids(3);
  const Status read = (*data)->Read(last, (*data)->length(last) - 3, 1000, ids);
  EXPECT_TRUE(read.ok()) << read;
  return ids;
}

TEST(LargeFilesTest, OffsetsGoBeyond32BitsOfTokensAndOfBytes) {
  const TempDir dir;
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
  WriteHoles(dir.Path("d"), {kMost, kMost, 1, kMost, 3});
  EXPECT_EQ(std::filesystem::file_size(dir.Path("d.bin")), 2 * (3 * uint64_t{kMost} + 4));
  EXPECT_THAT(LastIds(dir.Path("d")), ElementsAre(7, 8, 9));
  const auto data = *IndexedDataset::Open(dir.Path("d"));
  EXPECT_EQ(data->num_tokens(), 3 * int64_t{kMost} + 4);
  // The same by hand: the offset of the last sequence, behind the header, 5 lengths and 4 offsets.
  int64_t offset = 0;
  ReadText(dir.Path("d.idx")).copy(reinterpret_cast<char*>(&offset), 8, 34 + 4 * 5 + 8 * 4);
  EXPECT_EQ(offset, 2 * (3 * int64_t{kMost} + 1));
}

TEST(LargeFilesTest, TheyAreJoinedDividedAndVerified) {
  if (std::getenv("MT_LONG_TESTS") == nullptr)
    GTEST_SKIP() << "writes 10 GB: only with MT_LONG_TESTS=1 (scripts/test.sh --full)";
  const TempDir dir;
  constexpr int32_t kHalf = 1 << 30;  // in 2 GiB
  WriteHoles(dir.Path("a"), {kHalf, 5});
  WriteHoles(dir.Path("b"), {100, kHalf, kHalf / 4});
  const auto merged = MergeDatasets(
      {.inputs = {dir.Path("a"), dir.Path("b")}, .output = dir.Path("m"), .overwrite = true});
  ASSERT_TRUE(merged.ok()) << merged.status();
  EXPECT_THAT(LastIds(dir.Path("m")), ElementsAre(7, 8, 9));
  const auto verified = VerifyDataset({.prefix = dir.Path("m"), .vocab_size = 10});
  ASSERT_TRUE(verified.ok()) << verified.status();
  EXPECT_EQ(verified->tokens, int64_t{kHalf} * 9 / 4 + 105);
  EXPECT_EQ(verified->largest_id, 9);
  const auto parts =
      DivideDataset({.input = dir.Path("m"), .output = dir.Path("p"), .shares = {2, 3}});
  ASSERT_TRUE(parts.ok()) << parts.status();
  EXPECT_THAT(LastIds(dir.Path("p_0")), ElementsAre(7, 8, 9));
  EXPECT_THAT(LastIds(dir.Path("p_1")), ElementsAre(7, 8, 9));
  EXPECT_EQ(parts->at(1).tokens, int64_t{kHalf} * 5 / 4 + 100);
}

}  // namespace
}  // namespace mt::data
