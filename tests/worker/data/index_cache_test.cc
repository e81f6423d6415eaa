// The index cache: hits, keys, damage at every byte, concurrent builders, folders that are not
// writable.
#include "worker/data/index_cache.h"

#include <chrono>
#include <fcntl.h>
#include <filesystem>
#include <sys/file.h>
#include <sys/stat.h>
#include <thread>

#include <gmock/gmock.h>

#include "common/base/files.h"
#include "tests/worker/data/temp_data.h"

namespace mt::data {
namespace {

using ::testing::SizeIs;

const IndexRequest kRequest = {.range = {0, 5}, .seq_length = 8, .samples_asked = 12, .seed = 1234};

class IndexCacheTest : public ::testing::Test {
 protected:
  void SetUp() override { data_ = NumberedDataset(dir_.Path("d"), {5, 9, 3, 14, 7}); }

  // Training order as (position, offset) of each sample, through the cache.
  std::vector<int64_t> Order(const IndexRequest& request, const std::string& cache_dir) {
    const auto index = LoadOrBuildIndex(*data_, request, {.folder = cache_dir});
    EXPECT_TRUE(index.ok()) << index.status();
    std::vector<int64_t> order;
    for (int64_t i = 0; i < (*index)->num_samples(); ++i) {
      const SampleStart start = (*index)->start((*index)->shuffled(i));
      order.insert(order.end(), {(*index)->document(start.position), start.offset});
    }
    return order;
  }

  TempDir dir_;
  TempDir cache_;
  std::shared_ptr<const IndexedDataset> data_;
};

TEST_F(IndexCacheTest, TheCachedIndexIsTheBuiltOne) {
  const auto built = Order(kRequest, "");
  EXPECT_EQ(Order(kRequest, cache_.path()), built);
  ASSERT_THAT(cache_.Files(), SizeIs(1));
  const std::string path = *IndexCachePath(*data_, kRequest, cache_.path());
  struct stat written {
  }, found{};
  ASSERT_EQ(::stat(path.c_str(), &written), 0);
  // A hit counts as a use, by which the agent trims the cache.
  const auto now = std::filesystem::file_time_type::clock::now();
  std::filesystem::last_write_time(path, now - std::chrono::hours(100));
  EXPECT_EQ(Order(kRequest, cache_.path()), built);
  EXPECT_GT(std::filesystem::last_write_time(path), now - std::chrono::hours(1));
  ASSERT_EQ(::stat(path.c_str(), &found), 0);
  EXPECT_EQ(found.st_ino, written.st_ino) << "the second call is a hit";
}

TEST_F(IndexCacheTest, EveryInputOfTheOrderHasItsOwnFile) {
  std::vector<IndexRequest> requests(7, kRequest);
  requests[1].seed = 1235;
  requests[2].seq_length = 7;
  requests[3].range = {1, 5};
  requests[4].samples_asked = 5;  // two epochs instead of three
  requests[5].range = {0, 5, 2, 3};
  requests[6].range = {0, 5, 3, 2};  // as many tokens of the same sequences
  for (const IndexRequest& request : requests) {
    EXPECT_EQ(Order(request, cache_.path()), Order(request, ""));
  }
  EXPECT_THAT(cache_.Files(), SizeIs(7));
  data_ = NumberedDataset(dir_.Path("other"), {5, 9, 3, 14, 8});
  EXPECT_EQ(Order(kRequest, cache_.path()), Order(kRequest, ""));
  EXPECT_THAT(cache_.Files(), SizeIs(8));
  // n alone changes nothing as long as epochs and the separate rule stay.
  IndexRequest same = kRequest;
  same.samples_asked = 13;
  Order(same, cache_.path());
  EXPECT_THAT(cache_.Files(), SizeIs(8));
}

// Made in Python of the text that FORMAT.md tells of: who has a cache of whole sequences keeps it.
TEST_F(IndexCacheTest, FilesHaveTheirNamesOfTheFormat) {
  EXPECT_EQ(*IndexCachePath(*data_, kRequest, "c"), "c/e259c47728a1a11035dd4c565a292819.mtindex");
  IndexRequest cut = kRequest;
  cut.range = {0, 5, 2, 3};
  EXPECT_EQ(*IndexCachePath(*data_, cut, "c"), "c/ce380a7e06796c187554ff519fc9323a.mtindex");
}

TEST_F(IndexCacheTest, DamageAtAnyByteIsRepaired) {
  const auto built = Order(kRequest, cache_.path());
  const std::string path = *IndexCachePath(*data_, kRequest, cache_.path());
  const std::string good = ReadText(path);
  // The last 128 bytes are the name of who made it, which is no matter.
  for (size_t at = 0; at < good.size() - 128; at += 3) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x40);
    WriteText(path, bad);
    ASSERT_EQ(Order(kRequest, cache_.path()), built) << "flipped at " << at;
    ASSERT_EQ(ReadText(path), good) << "rebuilt after a flip at " << at;
  }
  for (const size_t size : {size_t{0}, size_t{7}, size_t{128}, good.size() - 1}) {
    WriteText(path, good.substr(0, size));
    ASSERT_EQ(Order(kRequest, cache_.path()), built) << "truncated to " << size;
    ASSERT_EQ(ReadText(path), good);
  }
  WriteText(path, good + "x");
  ASSERT_EQ(Order(kRequest, cache_.path()), built);
  EXPECT_THAT(cache_.Files(), SizeIs(1)) << "no temporary remains";
}

TEST_F(IndexCacheTest, ConcurrentBuildersAgree) {
  const auto built = Order(kRequest, "");
  const std::string folder = cache_.Path("made/on/demand");
  std::vector<std::vector<int64_t>> orders(8);
  std::vector<std::thread> threads;
  threads.reserve(orders.size());
  for (auto& order : orders) {
    threads.emplace_back([&] { order = Order(kRequest, folder); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& order : orders) EXPECT_EQ(order, built);
  const std::string path = *IndexCachePath(*data_, kRequest, folder);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
  EXPECT_TRUE(std::filesystem::exists(path));
}

// Of two ranks one builds: who waits for the folder's lock looks again before it builds.
TEST_F(IndexCacheTest, WhoWaitsForABuilderMapsItsFile) {
  const auto built = Order(kRequest, cache_.Path("other"));
  const std::string folder = cache_.Path("shared");
  const std::string path = *IndexCachePath(*data_, kRequest, folder);
  ASSERT_TRUE(base::MakeDirs(folder).ok());
  const base::Fd builder(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  ASSERT_EQ(::flock(builder.get(), LOCK_EX), 0);
  std::vector<int64_t> order;
  std::thread waits([&] { order = Order(kRequest, folder); });
  // Long enough for a build that does not wait; one that comes later proves nothing and passes.
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_FALSE(std::filesystem::exists(path));
  std::filesystem::copy_file(*IndexCachePath(*data_, kRequest, cache_.Path("other")), path);
  struct stat before {
  }, after{};
  ASSERT_EQ(::stat(path.c_str(), &before), 0);
  ASSERT_EQ(::flock(builder.get(), LOCK_UN), 0);
  waits.join();
  EXPECT_EQ(order, built);
  ASSERT_EQ(::stat(path.c_str(), &after), 0);
  EXPECT_EQ(after.st_ino, before.st_ino) << "mapped, not built once more";
}

TEST_F(IndexCacheTest, WithoutAWritableFolderTheIndexStaysInMemory) {
  const std::string file = cache_.Path("file");
  WriteText(file, "not a folder");
  EXPECT_EQ(Order(kRequest, file + "/cache"), Order(kRequest, ""));
}

}  // namespace
}  // namespace mt::data
