// Split, shuffle and the three indices against numpy's and Megatron's own results (goldens) and, on
// random cases, against a slow restatement of the rules that joins all tokens in memory.
#include "worker/data/sample_index.h"

#include <array>
#include <fstream>
#include <map>
#include <numeric>
#include <random>

#include <gmock/gmock.h>

#include "tests/worker/data/temp_data.h"
#include "worker/data/shuffle.h"
#include "worker/data/split.h"

namespace mt::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <class T>
std::vector<T> Iota(size_t n) {
  std::vector<T> values(n);
  std::iota(values.begin(), values.end(), T{0});
  return values;
}

template <class T>
uint64_t Checksum(const std::vector<T>& values) {
  uint64_t sum = 0;
  for (const T value : values) sum = sum * 1000003 + static_cast<uint64_t>(value);
  return sum;
}

TEST(ShuffleTest, EqualsNumpyRandomState) {
  ShuffleStream stream(1234);
  std::vector<int32_t> ten = Iota<int32_t>(10);
  stream.Shuffle(ten);
  EXPECT_THAT(ten, ElementsAre(7, 2, 9, 1, 0, 8, 4, 5, 6, 3));
  ten = Iota<int32_t>(10);
  stream.Shuffle(ten);
  EXPECT_THAT(ten, ElementsAre(7, 3, 5, 1, 4, 8, 0, 2, 6, 9));
  ten = Iota<int32_t>(10);
  ShuffleStream(42).Shuffle(ten);
  EXPECT_THAT(ten, ElementsAre(8, 1, 5, 0, 7, 2, 9, 4, 3, 6));
}

// numpy 1.24: r = RandomState(seed); r.shuffle(arange(n)) twice; sum = sum * 1000003 + x.
TEST(ShuffleTest, LongerArraysEqualNumpyInEveryElementType) {
  struct Golden {
    uint32_t seed;
    size_t n;
    uint64_t once;
    uint64_t twice;
  };
  for (const Golden& golden : {Golden{1234, 5003, 0xb84e98f8ee744293, 0xc768eeb14c276bd5},
                               Golden{0, 1000, 0xed87d0ed53e9eea0, 0xc3e526b362761ebe},
                               Golden{4294967295, 777, 0xd18ab28a529c6c66, 0x7dd254dba3235f58}}) {
    ShuffleStream stream(golden.seed);
    std::vector<uint32_t> values = Iota<uint32_t>(golden.n);
    stream.Shuffle(values);
    EXPECT_EQ(Checksum(values), golden.once);
    stream.Shuffle(values);
    EXPECT_EQ(Checksum(values), golden.twice);
    std::vector<int64_t> wide = Iota<int64_t>(golden.n);
    ShuffleStream(golden.seed).Shuffle(wide);
    EXPECT_EQ(Checksum(wide), golden.once);
  }
}

TEST(ShuffleTest, DrawsAboveThirtyTwoBitsTakeTwoWordsHighFirst) {
  std::mt19937 words(7);
  const uint64_t max = (uint64_t{1} << 40) - 1;  // a full mask: nothing is rejected
  const uint64_t high = words();
  const uint64_t low = words();
  EXPECT_EQ(ShuffleStream(7).Draw(max), ((high << 32) | low) & max);
}

std::vector<int64_t> Bounds(const std::string& split, int64_t n) {
  const auto shares = ParseSplit(split);
  EXPECT_TRUE(shares.ok()) << shares.status();
  const auto ranges = SplitRanges(*shares, n);
  EXPECT_EQ(ranges[0].begin, 0);
  EXPECT_EQ(ranges[1].begin, ranges[0].end);
  EXPECT_EQ(ranges[2].begin, ranges[1].end);
  return {ranges[0].end, ranges[1].end, ranges[2].end};
}

// Goldens: the rule in Python with numpy's normalisation.
TEST(SplitTest, BoundsRoundHalfToEven) {
  EXPECT_THAT(Bounds("969,30,1", 15217), ElementsAre(14745, 15202, 15217));
  EXPECT_THAT(Bounds("969,30,1", 50), ElementsAre(48, 50, 50));
  EXPECT_THAT(Bounds("1,1,1", 1000), ElementsAre(333, 667, 1000));
  EXPECT_THAT(Bounds("1, 1, 1", 5), ElementsAre(2, 3, 5));
  EXPECT_THAT(Bounds("0.5,0.5", 5), ElementsAre(2, 5, 5));
  EXPECT_THAT(Bounds("0.5,0.5", 7), ElementsAre(4, 7, 7));
  EXPECT_THAT(Bounds("0.5,0.5", 15217), ElementsAre(7608, 15217, 15217));
  EXPECT_THAT(Bounds("949,50,1", 15217), ElementsAre(14441, 15202, 15217));
  EXPECT_THAT(Bounds("100", 7), ElementsAre(7, 7, 7));
}

TEST(SplitTest, RefusesWhatIsNoSplit) {
  for (const char* text : {"", "a", "1,,1", "1,2,3,4", "-1,2", "0,0", "nan,1", "1;2", "inf"}) {
    const auto shares = ParseSplit(text);
    ASSERT_FALSE(shares.ok()) << text;
    EXPECT_THAT(base::Message(shares.status()), HasSubstr("969,30,1")) << text;
  }
}

// By hand: sequence 1 has tokens 0 ... 4 of the data set, 3 has 5 ... 13, 4 has 14 ... 16, 6 has 17
// ... 19.
TEST(SplitTest, TokensAreDividedWithinSequences) {
  const TempDir dir;
  const auto data = NumberedDataset(dir.Path("d"), {0, 5, 0, 9, 3, 0, 3, 0});
  const auto parts = DivideData(*data, "50,40,10", SplitBy::kTokens);
  ASSERT_TRUE(parts.ok()) << parts.status();
  EXPECT_THAT(*parts, ElementsAre(SequenceRange{1, 4, 0, 4}, SequenceRange{3, 7, 5, 2},
                                  SequenceRange{6, 7, 1, 0}));
  EXPECT_EQ(CountTokens(*data, (*parts)[0]), 10);
  EXPECT_EQ(CountTokens(*data, (*parts)[1]), 8);
  EXPECT_EQ(CountTokens(*data, (*parts)[2]), 2);
  const auto one = NumberedDataset(dir.Path("one"), {20});
  EXPECT_THAT(*DivideData(*one, "50,0,49", SplitBy::kTokens),
              ElementsAre(SequenceRange{0, 1, 0, 10}, SequenceRange{}, SequenceRange{0, 1, 10, 0}));
  EXPECT_THAT(*DivideData(*one, "1,1,1", SplitBy::kTokens),
              ElementsAre(SequenceRange{0, 1, 0, 13}, SequenceRange{0, 1, 7, 7},
                          SequenceRange{0, 1, 13, 0}));
  EXPECT_THAT(*DivideData(*one, "0.5,0.5", SplitBy::kDocuments),
              ElementsAre(SequenceRange{}, SequenceRange{0, 1}, SequenceRange{1, 1}))
      << "half of one, rounded to even";
  EXPECT_FALSE(DivideData(*one, "x", SplitBy::kTokens).ok());
  EXPECT_EQ(SplitText("969,30,1", SplitBy::kDocuments), "969,30,1");
  EXPECT_EQ(SplitText("969,30,1", SplitBy::kTokens), "969,30,1 by tokens");
}

TEST(SplitTest, AFileThatIsWrittenOverIsNoPart) {
  const TempDir dir;
  const auto data = NumberedDataset(dir.Path("d"), {10, 10});
  std::fstream idx(dir.Path("d.idx"), std::ios::in | std::ios::out | std::ios::binary);
  const std::array<int32_t, 2> shorter = {1, -1};
  idx.seekp(34);
  idx.write(reinterpret_cast<const char*>(shorter.data()), sizeof(shorter));
  idx.flush();
  const Status status = DivideData(*data, "1,1", SplitBy::kTokens).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(base::Message(status), HasSubstr("d.idx: its sequences do not have 20 tokens any"));
  // What is left of a range stays within the sequence, whatever its length has become.
  for (const int64_t length : {-7, 0, 3, 8, 12}) {
    const TokenSpan span = SpanOf({2, 3, 4, 5}, 2, length);
    EXPECT_GE(span.begin, 0);
    EXPECT_GE(span.end, span.begin);
    EXPECT_LE(span.end, std::max<int64_t>(length, 0));
    EXPECT_EQ(span.end - span.begin, std::max<int64_t>(length - 9, 0));
  }
}

struct Arrays {
  std::vector<int32_t> documents;
  std::vector<std::pair<int64_t, int64_t>> starts;
  std::vector<int64_t> shuffle;
  friend bool operator==(const Arrays&, const Arrays&) = default;
};

Arrays ArraysOf(const SampleIndex& index) {
  Arrays arrays;
  for (int64_t i = 0; i < index.num_positions(); ++i) arrays.documents.push_back(index.document(i));
  for (int64_t i = 0; i <= index.num_samples(); ++i) {
    arrays.starts.emplace_back(index.start(i).position, index.start(i).offset);
  }
  for (int64_t i = 0; i < index.num_samples(); ++i) arrays.shuffle.push_back(index.shuffled(i));
  return arrays;
}

TEST(SampleIndexTest, MegatronGoldenSeparateLastEpoch) {
  const TempDir dir;
  const auto data = NumberedDataset(dir.Path("d"), {5, 9, 3, 14, 7});
  const auto index = BuildIndexInMemory(
      *data, {.range = {0, 5}, .seq_length = 8, .samples_asked = 5, .seed = 1234});
  ASSERT_TRUE(index.ok()) << index.status();
  EXPECT_EQ((*index)->plan().epochs, 2);
  EXPECT_TRUE((*index)->plan().separate_last_epoch);
  const Arrays arrays = ArraysOf(**index);
  EXPECT_THAT(arrays.documents, ElementsAre(4, 0, 1, 2, 3, 3, 2, 1, 0, 4));
  const std::vector<std::pair<int64_t, int64_t>> starts = {{0, 0}, {1, 1},  {2, 4}, {4, 0}, {4, 8},
                                                           {5, 2}, {5, 10}, {7, 1}, {8, 0}, {9, 3}};
  EXPECT_EQ(arrays.starts, starts);
  EXPECT_THAT(arrays.shuffle, ElementsAre(2, 0, 3, 1, 5, 8, 4, 6, 7));
}

TEST(SampleIndexTest, MegatronGoldenJointEpochs) {
  const TempDir dir;
  const auto data = NumberedDataset(dir.Path("d"), {5, 9, 3, 14, 7});
  const auto index = BuildIndexInMemory(
      *data, {.range = {0, 5}, .seq_length = 8, .samples_asked = 12, .seed = 1234});
  ASSERT_TRUE(index.ok()) << index.status();
  EXPECT_EQ((*index)->plan().epochs, 3);
  EXPECT_FALSE((*index)->plan().separate_last_epoch);
  const Arrays arrays = ArraysOf(**index);
  EXPECT_THAT(arrays.documents, ElementsAre(3, 1, 0, 2, 4, 2, 0, 2, 1, 4, 3, 4, 0, 1, 3));
  EXPECT_THAT(arrays.shuffle, ElementsAre(11, 12, 4, 3, 7, 2, 1, 9, 5, 0, 8, 13, 6, 10));
}

// The rules again, the slow way: epochs by adding, samples by looking up token k S in the joined
// text.
Arrays NaiveIndex(const std::vector<int32_t>& lengths, const IndexRequest& request) {
  const auto shuffle = [](std::vector<int64_t>* values, size_t begin, size_t end,
                          std::mt19937* words) {
    for (size_t i = end - begin; i-- > 1;) {
      uint64_t mask = 1;
      while (mask < i) mask = 2 * mask + 1;
      uint64_t j = (*words)() & mask;
      while (j > i) j = (*words)() & mask;
      std::swap((*values)[begin + i], (*values)[begin + j]);
    }
  };
  int64_t per_epoch = 0;
  for (int64_t i = request.range.begin; i < request.range.end; ++i) {
    per_epoch += lengths[static_cast<size_t>(i)];
  }
  const int64_t s = request.seq_length;
  int64_t epochs = 1;
  while (request.samples_asked > 0 && epochs * per_epoch < request.samples_asked * s + 1) ++epochs;
  const int64_t before = ((epochs - 1) * per_epoch - 1) / s;
  const bool separate =
      epochs > 1 && request.samples_asked - before <
                        static_cast<int64_t>(0.80 * static_cast<double>((per_epoch - 1) / s));
  std::mt19937 words(request.seed);
  std::vector<int64_t> documents;
  for (int64_t e = 0; e < epochs; ++e) {
    for (int64_t i = request.range.begin; i < request.range.end; ++i) documents.push_back(i);
  }
  const size_t cut =
      documents.size() / static_cast<size_t>(epochs) * static_cast<size_t>(epochs - 1);
  if (separate) shuffle(&documents, 0, cut, &words);
  shuffle(&documents, separate ? cut : 0, documents.size(), &words);

  std::vector<std::pair<int64_t, int64_t>> joined;  // where each token of the run lies
  for (size_t p = 0; p < documents.size(); ++p) {
    for (int32_t t = 0; t < lengths[static_cast<size_t>(documents[p])]; ++t) {
      joined.emplace_back(static_cast<int64_t>(p), t);
    }
  }
  Arrays out;
  out.documents.assign(documents.begin(), documents.end());
  const int64_t samples = (epochs * per_epoch - 1) / s;
  out.starts.emplace_back(0, 0);  // by definition, though the first sequence may be empty
  for (int64_t k = 1; k <= samples; ++k) out.starts.push_back(joined[static_cast<size_t>(k * s)]);
  out.shuffle = Iota<int64_t>(static_cast<size_t>(samples));
  const size_t first = separate ? static_cast<size_t>(before) : 0;
  if (separate) shuffle(&out.shuffle, 0, first, &words);
  shuffle(&out.shuffle, first, out.shuffle.size(), &words);
  return out;
}

TEST(SampleIndexTest, RandomCasesEqualTheNaiveRules) {
  const TempDir dir;
  std::mt19937 random(99);
  const auto below = [&](uint32_t n) { return static_cast<int64_t>(random() % n); };
  std::map<bool, int> seen;
  for (int round = 0; round < 300; ++round) {
    std::vector<int32_t> lengths(static_cast<size_t>(1 + below(30)));
    for (int32_t& length : lengths) length = static_cast<int32_t>(below(4) == 0 ? 0 : below(40));
    lengths.back() = 60;  // never too little for one sample
    const int64_t n = static_cast<int64_t>(lengths.size());
    const int64_t begin = below(static_cast<uint32_t>(n));
    const IndexRequest request = {.range = {begin, n},
                                  .seq_length = 1 + below(20),
                                  .samples_asked = below(3) == 0 ? 0 : 1 + below(100),
                                  .seed = static_cast<uint32_t>(random())};
    const auto data = NumberedDataset(dir.Path("d"), lengths);
    const auto index = BuildIndexInMemory(*data, request);
    ASSERT_TRUE(index.ok()) << index.status();
    ASSERT_GE((*index)->num_samples(), request.samples_asked);
    ASSERT_EQ(ArraysOf(**index), NaiveIndex(lengths, request)) << "round " << round;
    ++seen[(*index)->plan().separate_last_epoch];
  }
  EXPECT_GT(seen[true], 20);
  EXPECT_GT(seen[false], 20);
}

// A part by tokens has the order of a data set whose sequences are cut.
TEST(SampleIndexTest, PartsByTokensEqualTheNaiveRulesOfCutSequences) {
  const TempDir dir;
  std::mt19937 random(2026);
  const auto below = [&](uint32_t n) { return static_cast<int64_t>(random() % n); };
  int within = 0;
  for (int round = 0; round < 80; ++round) {
    std::vector<int32_t> lengths(static_cast<size_t>(1 + below(12)));
    for (int32_t& length : lengths) length = static_cast<int32_t>(below(4) == 0 ? 0 : below(40));
    lengths[static_cast<size_t>(below(static_cast<uint32_t>(lengths.size())))] += 20;
    const auto data = NumberedDataset(dir.Path("d"), lengths);
    const std::string split = fmt::format("{},{},{}", 1 + below(9), below(4), below(3));
    const auto parts = DivideData(*data, split, SplitBy::kTokens);
    ASSERT_TRUE(parts.ok()) << parts.status();
    int64_t reached = 0;
    for (const SequenceRange& range : *parts) {
      if (range.begin == range.end) continue;
      std::vector<int32_t> cut = lengths;
      cut[static_cast<size_t>(range.begin)] -= static_cast<int32_t>(range.skip_front);
      cut[static_cast<size_t>(range.end - 1)] -= static_cast<int32_t>(range.skip_back);
      EXPECT_EQ(data->CountTokens(0, range.begin) + range.skip_front, reached) << "no gap";
      EXPECT_EQ(CountTokens(*data, range),
                std::accumulate(cut.begin() + range.begin, cut.begin() + range.end, int64_t{0}));
      reached += CountTokens(*data, range);
      within += range.skip_front > 0 ? 1 : 0;
      const IndexRequest request = {.range = range,
                                    .seq_length = 1 + below(20),
                                    .samples_asked = 1 + below(60),
                                    .seed = static_cast<uint32_t>(random())};
      const auto index = BuildIndexInMemory(*data, request);
      ASSERT_TRUE(index.ok()) << index.status();
      ASSERT_EQ(ArraysOf(**index), NaiveIndex(cut, request)) << "round " << round << ", " << split;
    }
    ASSERT_EQ(reached, data->num_tokens());
  }
  EXPECT_GT(within, 40);
}

TEST(SampleIndexTest, RefusesTooLittleDataAndAbsurdRuns) {
  const IndexRequest whole = {.range = {0, 3}, .seq_length = 8};
  EXPECT_THAT(base::Message(PlanIndex(whole, 8).status()),
              HasSubstr("3 sequences with 8 tokens cannot give a sample of 8 + 1 tokens"));
  EXPECT_TRUE(PlanIndex(whole, 9).ok());
  IndexRequest huge = whole;
  huge.samples_asked = int64_t{1} << 40;
  EXPECT_THAT(base::Message(PlanIndex(huge, 10).status()), HasSubstr("epochs"));
  huge.samples_asked = int64_t{1} << 62;
  EXPECT_FALSE(PlanIndex(huge, 10).ok());
  EXPECT_FALSE(PlanIndex(huge, 0).ok());
}

TEST(SampleIndexTest, WidthsFollowTheSizes) {
  const IndexRequest request = {.range = {0, 1000}, .seq_length = 10};
  const auto layout = [&](int64_t epochs, int64_t samples) {
    return MakeIndexLayout(request, {.epochs = epochs, .samples = samples});
  };
  EXPECT_FALSE(layout(2147483, 5).wide_starts);
  EXPECT_TRUE(layout(2147484, 5).wide_starts);
  EXPECT_FALSE(layout(1, 4294967293).wide_shuffle);
  EXPECT_TRUE(layout(1, 4294967294).wide_shuffle);
  const IndexLayout small = layout(1, 7);
  EXPECT_EQ(small.starts_at, 4032);   // 4000 bytes of positions, up to the next 64
  EXPECT_EQ(small.shuffle_at, 4096);  // 8 rows of 8 bytes
  EXPECT_EQ(small.total_bytes, 4096 + 28);
}

}  // namespace
}  // namespace mt::data
