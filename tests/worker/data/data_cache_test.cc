// What ranks of a node share besides sample indices: the pass over an .idx and a blend's draw; and
// the name of who made a file of the cache.
#include <chrono>
#include <filesystem>
#include <thread>

#include <gmock/gmock.h>

#include "tests/worker/data/temp_data.h"
#include "worker/data/blend_plan.h"
#include "worker/data/cache_file.h"
#include "worker/data/data_source.h"
#include "worker/data/idx_scan.h"

namespace mt::data {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int64_t kSecond = 1'000'000'000;

class DataCacheTest : public ::testing::Test {
 protected:
  std::string OnlyFile() const {
    const std::vector<std::string> files = folder_.Files();
    EXPECT_THAT(files, SizeIs(1));
    return files.empty() ? "" : folder_.Path(files[0]);
  }

  TempDir dir_;
  TempDir folder_;
  DataCache cache_ = {.folder = folder_.path(), .owner = "team/first"};
};

class SharedScanTest : public DataCacheTest {
 protected:
  StatusOr<IdxScan> Get() {
    return SharedScan(cache_, key_, [this]() -> StatusOr<IdxScan> {
      ++scans_;
      return scan_;
    });
  }

  ScanKey key_ = {.idx = {.device = 1,
                          .inode = 2,
                          .bytes = 300,
                          .modified_ns = 10 * kSecond,
                          .changed_ns = 10 * kSecond,
                          .seen_ns = 20 * kSecond},
                  .bin_bytes = 1000,
                  .type = "u16",
                  .sequences = 2 * kScanBlock + 5};
  StatusOr<IdxScan> scan_ = IdxScan{.digest = std::string(32, 'd'),
                                    .num_tokens = 500,
                                    .max_length = 77,
                                    .spaced_by_8 = false,
                                    .before = {0, 200, 499}};
  int scans_ = 0;
};

TEST_F(SharedScanTest, IsTakenOnce) {
  EXPECT_EQ(*Get(), *scan_);
  cache_.owner = "team/second";
  EXPECT_EQ(*Get(), *scan_);
  EXPECT_EQ(scans_, 1);
  const std::string bytes = ReadText(OnlyFile());
  EXPECT_EQ(bytes.substr(bytes.size() - 128), "team/first" + std::string(118, '\0'));
  // Files of programs that wrote no name are as good.
  WriteText(OnlyFile(), bytes.substr(0, bytes.size() - 128));
  EXPECT_EQ(*Get(), *scan_);
  EXPECT_EQ(scans_, 1);
}

TEST_F(SharedScanTest, EveryChangeOfAFileIsAnother) {
  Get().IgnoreError();
  int scans = 1;
  const ScanKey key = key_;
  for (const auto change :
       {+[](ScanKey* k) { k->idx.device = 9; }, +[](ScanKey* k) { k->idx.inode = 9; },
        +[](ScanKey* k) { k->idx.bytes = 9; }, +[](ScanKey* k) { k->idx.modified_ns += 1; },
        +[](ScanKey* k) { k->idx.changed_ns += 1; }, +[](ScanKey* k) { k->bin_bytes = 9; },
        +[](ScanKey* k) { k->type = "i32"; }}) {
    key_ = key;
    change(&key_);
    Get().IgnoreError();
    EXPECT_EQ(scans_, ++scans);
  }
}

// A change right behind might leave its times as they are.
TEST_F(SharedScanTest, OfAFileThatWasJustChangedNothingIsKept) {
  key_.idx.seen_ns = key_.idx.changed_ns + kSecond;
  EXPECT_EQ(*Get(), *scan_);
  EXPECT_EQ(*Get(), *scan_);
  EXPECT_EQ(scans_, 2);
  EXPECT_THAT(folder_.Files(), IsEmpty());
}

TEST_F(SharedScanTest, ErrorsAreReturnedAndNotKept) {
  scan_ = base::DataLoss("damaged");
  EXPECT_EQ(base::Message(Get().status()), "damaged");
  EXPECT_EQ(scans_, 1);
  EXPECT_THAT(folder_.Files(), IsEmpty());
  scan_ = IdxScan{.digest = std::string(32, 'e'), .before = {0, 0, 0}};
  EXPECT_EQ(*Get(), *scan_);
}

TEST_F(SharedScanTest, DamageIsFoundAndRepaired) {
  Get().IgnoreError();
  const std::string good = ReadText(OnlyFile());
  int scans = 1;
  for (const size_t at : {size_t{0}, size_t{50}, size_t{81}, size_t{128}, good.size() - 129}) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 1);
    WriteText(OnlyFile(), bad);
    EXPECT_EQ(*Get(), *scan_);
    EXPECT_EQ(scans_, ++scans) << at;
    EXPECT_EQ(ReadText(OnlyFile()), good);
  }
  cache_.folder = dir_.Path("file");
  WriteText(cache_.folder, "no folder");
  EXPECT_EQ(*Get(), *scan_);
  EXPECT_EQ(scans_, scans + 1) << "where nothing can be kept it is taken once all the same";
}

// Of more blocks than one: sums by whole blocks are those of the lengths.
TEST_F(DataCacheTest, AnIdxThatIsOpenedAgainIsNotReadThrough) {
  std::vector<int32_t> lengths(2 * kScanBlock + 70'000);
  for (size_t i = 0; i < lengths.size(); ++i) lengths[i] = static_cast<int32_t>(i % 3);
  WriteDataset(dir_.Path("d"), lengths, TokenType::kU16, [](int64_t, int64_t t) { return t; });
  const auto alone = *IndexedDataset::Open(dir_.Path("d"));
  std::this_thread::sleep_for(std::chrono::milliseconds(2100));  // until its times are settled
  const auto first = IndexedDataset::Open(dir_.Path("d"), {}, cache_);
  ASSERT_TRUE(first.ok()) << first.status();
  const auto now = std::filesystem::file_time_type::clock::now();
  std::filesystem::last_write_time(OnlyFile(), now - std::chrono::hours(9));
  const auto second = IndexedDataset::Open(dir_.Path("d"), {}, cache_);
  EXPECT_GT(std::filesystem::last_write_time(OnlyFile()), now - std::chrono::hours(1)) << "used";
  for (const auto& data : {alone, *first, *second}) {
    EXPECT_EQ(data->idx_digest(), alone->idx_digest());
    EXPECT_EQ(data->num_tokens(), alone->num_tokens());
    EXPECT_EQ(data->max_length(), 2);
    const int64_t end = data->num_sequences();
    EXPECT_EQ(data->CountTokens(0, end), data->num_tokens());
    for (const int64_t begin : {int64_t{1}, kScanBlock - 1, kScanBlock, kScanBlock + 1}) {
      int64_t sum = 0;
      for (int64_t i = begin; i < end - 1; ++i) sum += lengths[static_cast<size_t>(i)];
      EXPECT_EQ(data->CountTokens(begin, end - 1), sum) << begin;
    }
  }
}

class SharedDrawTest : public DataCacheTest {
 protected:
  static void ExpectSame(const BlendDraw& a, const BlendDraw& b) {
    ASSERT_EQ(a.num_samples(), b.num_samples());
    for (int64_t i = 0; i < a.num_samples(); ++i) {
      ASSERT_EQ(a.At(i), b.At(i)) << i;
      ASSERT_EQ(a.Taken(i), b.Taken(i)) << i;
    }
    EXPECT_EQ(a.Taken(a.num_samples()), b.Taken(b.num_samples()));
    EXPECT_FALSE(b.lost());
  }
};

TEST_F(SharedDrawTest, IsTheDrawOfEachAlone) {
  const std::vector<double> weights = {5, 0.01, 3, 1};
  const std::vector<int64_t> sizes = {7, 0, 1500, 1, 33};
  for (const int64_t samples : {1, 1023, 1024, 3000}) {
    for (int i = 0; i < 2; ++i) {
      ExpectSame(BlendDraw::ByWeights(weights, samples),
                 BlendDraw::SharedByWeights(cache_, weights, samples));
    }
  }
  ExpectSame(BlendDraw::Exhaustive(sizes), BlendDraw::SharedExhaustive(cache_, sizes));
  ExpectSame(BlendDraw::Exhaustive(sizes), BlendDraw::SharedExhaustive(cache_, sizes));
  EXPECT_THAT(folder_.Files(), SizeIs(5));
  const std::vector<double> close = {5, 0.01, 3, std::nextafter(1.0, 2.0)};
  BlendDraw::SharedByWeights(cache_, close, 3000);
  EXPECT_THAT(folder_.Files(), SizeIs(6)) << "weights that differ in the last bit have their own";
}

TEST_F(SharedDrawTest, ADrawThatIsCutUnderARunIsOneError) {
  DataSourceArgs args = {.path = {{dir_.Path("a"), 2}, {dir_.Path("b"), 1}},
                         .split = "1",
                         .cache = cache_,
                         .train_samples = 40'000};
  args.seq_length = 4;
  args.vocab_size = 1000;
  for (const char* name : {"a", "b"}) {
    WriteDataset(dir_.Path(name), {100, 90}, TokenType::kU16,
                 [](int64_t, int64_t t) { return static_cast<int32_t>(t); });
  }
  const auto source = OpenDataSource(args);
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_THAT(source->train->ConsumedByMember(30'000), testing::ElementsAre(20'000, 10'000));
  std::vector<int32_t> tokens(5);
  std::vector<float> weights(4);
  for (const std::string& file : folder_.Files()) {
    if (ReadText(folder_.Path(file)).starts_with("MTBLEND"))
      std::filesystem::resize_file(folder_.Path(file), 4096);
  }
  const Status read = source->train->Read(39'000, tokens, weights);
  EXPECT_TRUE(absl::IsDataLoss(read)) << read;
  EXPECT_THAT(base::Message(read), testing::HasSubstr("its draw, a file of the data cache, was"));
  EXPECT_THAT(source->train->ConsumedByMember(39'000), IsEmpty());
}

}  // namespace
}  // namespace mt::data
