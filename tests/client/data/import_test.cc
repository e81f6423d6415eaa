// `mtctl data import` and `data merge`: what their flags mean, and what they say besides the
// result.
#include <filesystem>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/files.h"
#include "tests/client/fake_coordinator.h"
#include "worker/data/tokenizer/record.h"

namespace mt::client {
namespace {

using testing::HasSubstr;

class ImportTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("mt-import-" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  template <class T>
  std::string Write(const std::string& name, const std::vector<T>& values) const {
    const std::string bytes(reinterpret_cast<const char*>(values.data()),
                            values.size() * sizeof(T));
    EXPECT_TRUE(base::WriteFileAtomic(folder_ / name, bytes).ok());
    return folder_ / name;
  }
  Ran Import(const std::string& input, std::vector<std::string> more = {}) const {
    std::vector<std::string> args = {"data", "import", "--input", input, "--overwrite"};
    args.insert(args.end(), {"--output", out()});
    args.insert(args.end(), more.begin(), more.end());
    return Mtctl(nullptr, args);
  }
  std::string out() const { return folder_ / "out"; }
  std::string Wrote(const std::string& what) const { return out() + ".{bin,idx}: " + what + "\n"; }

  std::filesystem::path folder_;
};

TEST_F(ImportTest, WhereDocumentsEndByFlagsAndByTokenizer) {
  const std::string ids = Write<uint16_t>("a.bin", {1, 2, 256, 3, 256, 4});
  EXPECT_EQ(Import(ids).out, Wrote("1 documents, 6 tokens (u16)"));
  EXPECT_FALSE(std::filesystem::exists(out() + ".tokenizer.json"));
  EXPECT_EQ(Import(ids, {"--eod", "3"}).out, Wrote("2 documents, 6 tokens (u16)"));
  EXPECT_EQ(Import(ids, {"--tokenizer", "byte"}).out, Wrote("3 documents, 6 tokens (u16)"));
  const auto record = data::ReadTokenizerRecord(out());
  ASSERT_TRUE(record.ok() && record->has_value()) << record.status();
  EXPECT_EQ((*record)->type, "byte");
  EXPECT_EQ((*record)->eod, 256);
  EXPECT_EQ(Import(ids, {"--tokenizer", "ids", "--vocab-size", "257"}).out,
            Wrote("3 documents, 6 tokens (u16)"));
  EXPECT_EQ(Import(ids, {"--tokenizer", "byte", "--eod-begins"}).out,
            Wrote("3 documents, 6 tokens (u16)"));
  const Ran both = Import(ids, {"--eod-begins", "--eod-ends"});
  EXPECT_EQ(both.code, kExitUsage);
  const Ran small = Import(ids, {"--tokenizer", "byte", "--vocab-size", "100"});
  EXPECT_EQ(small.code, kExitInvalidInput);
  EXPECT_THAT(small.err, HasSubstr("id 256 at byte 4 is outside the vocabulary of 100"));
  EXPECT_THAT(Import(ids, {"--tokenizer", "ids"}).err,
              HasSubstr("the null tokenizer needs a vocabulary"));
  EXPECT_THAT(Import(ids, {"--tokenizer", "none.json"}).err, HasSubstr("none.json"));
}

TEST_F(ImportTest, FilesOfDatatroveAndNotes) {
  const std::string tokens = Write<uint32_t>("a.ds", {7, 8, 9});
  EXPECT_THAT(Import(tokens).err, HasSubstr("or say so (--token-type u16 or u32)"));
  EXPECT_EQ(Import(tokens, {"--token-type", "u32"}).out, Wrote("1 documents, 3 tokens (i32)"));
  Write<uint64_t>("a.ds.index", {1, 3});
  const Ran plain = Import(tokens);
  EXPECT_EQ(plain.out, Wrote("2 documents, 3 tokens (i32)"));
  EXPECT_EQ(plain.err, "");
  Write<char>("a.ds.loss", {1, 1, 1});
  const Ran noted = Import(tokens);
  EXPECT_EQ(noted.code, 0);
  EXPECT_EQ(noted.err,
            "mtctl: note: the loss masks (.loss) are not taken over; a run learns all ids of: " +
                tokens + "\n");
  EXPECT_EQ(Import(tokens, {"--token-type", "u16"}).code, kExitInvalidInput);
}

TEST_F(ImportTest, AMergeSaysWhatItLeavesOut) {
  ASSERT_EQ(Import(Write<uint16_t>("a.bin", {1, 2})).code, 0);
  const std::string none = folder_ / "none";
  const std::string idx(
      "MMIDIDX\0\0\1\0\0\0\0\0\0\0\10\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 42);
  Write<char>("none.idx", {idx.begin(), idx.end()});
  Write<char>("none.bin", {});
  const std::string all = folder_ / "all";
  const Ran merged = Mtctl(nullptr, {"data", "merge", none, out(), "--output", all});
  EXPECT_EQ(merged.out, all + ".{bin,idx}: 1 documents, 2 tokens (u16)\n");
  EXPECT_EQ(merged.err, "mtctl: note: left out, since without a document: " + none + "\n");
}

}  // namespace
}  // namespace mt::client
