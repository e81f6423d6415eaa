// Data sets joined and divided: the same documents in the same order, whatever their types.
#include "worker/data/token_files/rearrange.h"

#include <sys/resource.h>

#include <gmock/gmock.h>

#include "tests/worker/data/temp_data.h"
#include "worker/data/tokenizer.h"
#include "worker/data/tokenizer/record.h"

namespace mt::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Documents as lists of sequences of ids.
using Documents = std::vector<std::vector<std::vector<int32_t>>>;

Documents ReadDocuments(const std::string& prefix) {
  const auto data = IndexedDataset::Open(prefix);
  EXPECT_TRUE(data.ok()) << data.status();
  Documents out;
  for (int64_t d = 0; d < (*data)->num_documents(); ++d) {
    auto& document = out.emplace_back();
    for (int64_t i = (*data)->document_begin(d); i < (*data)->document_begin(d + 1); ++i) {
      auto& ids = document.emplace_back(static_cast<size_t>((*data)->length(i)));
      EXPECT_TRUE((*data)->Read(i, 0, 1000, ids).ok());
    }
  }
  return out;
}

// Documents of no, one and several sequences, of 0 and more tokens.
Documents SomeDocuments(int32_t first) {
  return {{{first, 2, 3}}, {}, {{first}, {}, {4, 5}}, {}, {{first, 6}, {7}}, {{first}}};
}

void WriteDocuments(const std::string& prefix, TokenType type, const Documents& documents) {
  auto writer = IndexedDatasetWriter::Create(prefix, type);
  ASSERT_TRUE(writer.ok()) << writer.status();
  for (const auto& document : documents) {
    for (const auto& sequence : document) ASSERT_TRUE((*writer)->AddSequence(sequence).ok());
    (*writer)->EndDocument();
  }
  ASSERT_TRUE((*writer)->Finish().ok());
}

Documents operator+(Documents a, const Documents& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

constexpr TokenType kTypes[] = {TokenType::kU8,  TokenType::kI8,  TokenType::kI16,
                                TokenType::kU16, TokenType::kI32, TokenType::kI64};

TEST(RearrangeTest, MergedAndDividedAgainInEveryType) {
  for (const TokenType type : kTypes) {
    const TempDir dir;
    WriteDocuments(dir.Path("a"), type, SomeDocuments(10));
    WriteDocuments(dir.Path("b"), type, SomeDocuments(20));
    const auto merged = MergeDatasets(
        {.inputs = {dir.Path("a"), dir.Path("b"), dir.Path("a")}, .output = dir.Path("new/m")});
    ASSERT_TRUE(merged.ok()) << merged.status();
    EXPECT_EQ(merged->documents, 18);
    EXPECT_EQ(merged->token_type, type);
    const Documents all = SomeDocuments(10) + SomeDocuments(20) + SomeDocuments(10);
    EXPECT_EQ(ReadDocuments(dir.Path("new/m")), all);
    // 18 documents by 1 : 2 : 1 end at 4.5, to even, 13.5, to even, and 18.
    const auto parts =
        DivideDataset({.input = dir.Path("new/m"), .output = dir.Path("p"), .shares = {1, 2, 1}});
    ASSERT_TRUE(parts.ok()) << parts.status();
    ASSERT_EQ(parts->size(), 3U);
    EXPECT_EQ((*parts)[0].documents, 4);
    EXPECT_EQ((*parts)[1].documents, 10);
    EXPECT_EQ(ReadDocuments(dir.Path("p_0")) + ReadDocuments(dir.Path("p_1")) +
                  ReadDocuments(dir.Path("p_2")),
              all);
    EXPECT_EQ(dir.Files().size(), 11U) << "nothing temporary is left";
  }
}

// A soft limit of descriptors, which comes back.
class DescriptorLimit {
 public:
  explicit DescriptorLimit(rlim_t most) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = most;
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  }
  DescriptorLimit(const DescriptorLimit&) = delete;
  DescriptorLimit& operator=(const DescriptorLimit&) = delete;
  ~DescriptorLimit() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

// 1,024 are the usual limit, and a part a file would be too many for 1,000 shares.
TEST(RearrangeTest, MorePartsThanDescriptors) {
  const TempDir dir;
  const int parts = 80;
  WriteDocuments(dir.Path("a"), TokenType::kU16, SomeDocuments(1));
  std::vector<std::string> inputs(20, dir.Path("a"));
  ASSERT_TRUE(MergeDatasets({.inputs = inputs, .output = dir.Path("m")}).ok());
  const Documents all = ReadDocuments(dir.Path("m"));
  ASSERT_GE(all.size(), size_t{parts});
  {
    const DescriptorLimit limit(48);
    const auto made = DivideDataset(
        {.input = dir.Path("m"), .output = dir.Path("p"), .shares = std::vector<double>(parts, 1)});
    ASSERT_TRUE(made.ok()) << made.status();
    ASSERT_EQ(made->size(), size_t{parts});
    EXPECT_GT(made->back().tokens + made->front().tokens, 0);
  }
  Documents joined;
  for (int part = 0; part < parts; ++part)
    joined = joined + ReadDocuments(dir.Path(fmt::format("p_{}", part)));
  EXPECT_EQ(joined, all);
}

TEST(RearrangeTest, WhatTheBinHoldsBetweenSequencesIsLeftOut) {
  const TempDir dir;
  WriteDocuments(dir.Path("a"), TokenType::kU8, {{{1, 2}, {3}}});
  std::string idx = ReadText(dir.Path("a.idx"));
  idx[34 + 8 + 8] = 3;  // the second sequence begins a byte later
  WriteText(dir.Path("a.idx"), idx);
  WriteText(dir.Path("a.bin"), std::string("\x01\x02\x09\x03", 4));
  ASSERT_TRUE(MergeDatasets({.inputs = {dir.Path("a")}, .output = dir.Path("m")}).ok());
  EXPECT_EQ(ReadText(dir.Path("m.bin")), "\x01\x02\x03");
}

TEST(RearrangeTest, TheTokenizersRecordGoesAlong) {
  const TempDir dir;
  const TokenizerRecord byte = {.type = "byte", .vocab_size = 257, .eod = 256};
  const TokenizerRecord other = {.type = "null", .vocab_size = 257, .eod = 256};
  for (const char* name : {"a", "b", "c", "none"})
    WriteDocuments(dir.Path(name), TokenType::kU16, SomeDocuments(1));
  for (const char* name : {"a", "b"}) ASSERT_TRUE(WriteTokenizerRecord(dir.Path(name), byte).ok());
  ASSERT_TRUE(WriteTokenizerRecord(dir.Path("c"), other).ok());
  const auto merge = [&](const std::string& first, const std::string& second) {
    return MergeDatasets({.inputs = {dir.Path(first), dir.Path(second)},
                          .output = dir.Path("m"),
                          .overwrite = true})
        .status();
  };
  ASSERT_TRUE(merge("a", "b").ok());
  EXPECT_EQ(*ReadTokenizerRecord(dir.Path("m")), byte);
  EXPECT_THAT(base::Message(merge("a", "c")), HasSubstr("one tokenizer at a time"));
  const auto three = MergeDatasets({.inputs = {dir.Path("none"), dir.Path("a"), dir.Path("c")},
                                    .output = dir.Path("m"),
                                    .overwrite = true});
  EXPECT_THAT(base::Message(three.status()), HasSubstr("one tokenizer at a time"));
  ASSERT_TRUE(
      DivideDataset({.input = dir.Path("m"), .output = dir.Path("p"), .shares = {1, 1}}).ok());
  EXPECT_EQ(*ReadTokenizerRecord(dir.Path("p_1")), byte);
  ASSERT_TRUE(merge("a", "none").ok());
  EXPECT_EQ(*ReadTokenizerRecord(dir.Path("m")), std::nullopt) << "the old one is gone too";
}

TEST(RearrangeTest, RefusesWhatCannotWork) {
  const TempDir dir;
  WriteDocuments(dir.Path("a"), TokenType::kU16, SomeDocuments(1));
  WriteDocuments(dir.Path("b"), TokenType::kI32, SomeDocuments(1));
  const auto merge = [&](const std::vector<std::string>& inputs, const std::string& output) {
    MergeArgs args = {.output = dir.Path(output)};
    for (const std::string& input : inputs) args.inputs.push_back(dir.Path(input));
    return base::Message(MergeDatasets(args).status());
  };
  EXPECT_THAT(merge({"a", "b"}, "m"), HasSubstr("b holds i32 and"));
  EXPECT_THAT(merge({"a"}, "a"), HasSubstr("is to be read and written"));
  EXPECT_THAT(merge({"a"}, "b"), HasSubstr("b.bin: exists already"));
  EXPECT_THAT(merge({"none"}, "m"), HasSubstr("none.idx: no such file"));
  const auto divide = [&](const std::vector<double>& shares) {
    return base::Message(
        DivideDataset({.input = dir.Path("a"), .output = dir.Path("p"), .shares = shares})
            .status());
  };
  EXPECT_THAT(divide({}), HasSubstr("no shares"));
  EXPECT_THAT(divide({1, 0}), HasSubstr("positive"));
  EXPECT_THAT(divide({1, -1}), HasSubstr("positive"));
  EXPECT_THAT(divide({1000, 1}), HasSubstr("part 1 of 2 would have none of its 6 documents"));
  EXPECT_THAT(dir.Files(), ElementsAre("a.bin", "a.idx", "b.bin", "b.idx"));
  WriteDocuments(dir.Path("p_1"), TokenType::kU16, SomeDocuments(1));
  EXPECT_THAT(divide({1, 1}), HasSubstr("p_1.bin: exists already"));
  EXPECT_THAT(dir.Files(), ElementsAre("a.bin", "a.idx", "b.bin", "b.idx", "p_1.bin", "p_1.idx"));
}

TEST(RearrangeTest, TheTokenizersFilesGoAlong) {
  const TempDir dir;
  const TokenizerConfig config = {
      .type = "hf", .file = MT_SOURCE_DIR "/tests/worker/data/tokenizer/golden/llama3.json"};
  const TokenizerRecord record = *RecordOf(config, nullptr);
  std::filesystem::create_directory(dir.Path("in"));
  WriteDocuments(dir.Path("in/a"), TokenType::kU16, SomeDocuments(1));
  ASSERT_TRUE(WriteTokenizerRecord(dir.Path("in/a"), record).ok());
  const auto parts_in = [&](const std::string& folder) {
    EXPECT_TRUE(
        DivideDataset(
            {.input = dir.Path("in/a"), .output = dir.Path(folder + "/p"), .shares = {1, 1}})
            .ok());
    return FindKeptTokenizer("hf", record.digest, dir.Path(folder)).has_value();
  };
  EXPECT_FALSE(parts_in("without")) << "there are none to take along";
  ASSERT_TRUE(KeepTokenizer(config, record.digest, dir.Path("in")).ok());
  EXPECT_TRUE(parts_in("parts"));
  ASSERT_TRUE(MergeDatasets({.inputs = {dir.Path("without/p_0"), dir.Path("parts/p_1")},
                             .output = dir.Path("merged/m")})
                  .ok());
  EXPECT_TRUE(FindKeptTokenizer("hf", record.digest, dir.Path("merged")));
}

}  // namespace
}  // namespace mt::data
