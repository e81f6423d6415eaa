// The rendezvous stores, and the requests that factories refuse.
#include <filesystem>
#include <memory>
#include <thread>

#include <gtest/gtest.h>

#include "common/base/ids.h"
#include "worker/comm/file_store.h"
#include "worker/comm/gloo/gloo_factory.h"
#include "worker/comm/memory_store.h"

namespace mt::comm {
namespace {

using std::chrono::milliseconds;

base::MonotonicTime In(milliseconds time) { return base::Clock::Real()->Now() + time; }

class StoreTest : public testing::TestWithParam<bool> {
 protected:
  StoreTest() {
    if (GetParam()) {
      store_ = std::make_unique<FileStore>(folder_);
    } else {
      store_ = std::make_unique<MemoryStore>();
    }
  }
  ~StoreTest() override { std::filesystem::remove_all(folder_); }

  const std::string folder_ = testing::TempDir() + "mt_store_" + base::RandomHex(8);
  std::unique_ptr<RendezvousStore> store_;
};

TEST_P(StoreTest, GivesBackBinaryValues) {
  const std::string value("\0a\n\xFF", 4);
  ASSERT_EQ(store_->Set("comm/dp/0/1", value), OkStatus());
  const auto got = store_->Get("comm/dp/0/1", In(milliseconds(1)));
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(*got, value);
}

TEST_P(StoreTest, WaitsForTheOtherSide) {
  std::thread late([this] {
    std::this_thread::sleep_for(milliseconds(50));
    EXPECT_EQ(store_->Set("key", "value"), OkStatus());
  });
  const auto got = store_->Get("key", In(milliseconds(60000)));
  late.join();
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(*got, "value");
}

TEST_P(StoreTest, NamesTheKeyThatNeverCame) {
  const auto got = store_->Get("tp", In(milliseconds(20)));
  EXPECT_EQ(got.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_NE(base::Message(got.status()).find("tp"), std::string::npos);
}

TEST_P(StoreTest, RefusesAnotherValue) {
  ASSERT_EQ(store_->Set("key", "one"), OkStatus());
  EXPECT_EQ(store_->Set("key", "one"), OkStatus());
  EXPECT_EQ(store_->Set("key", "two").code(), absl::StatusCode::kAlreadyExists);
}

TEST_P(StoreTest, KeepsSimilarKeysApart) {
  ASSERT_EQ(store_->Set("a/b", "1"), OkStatus());
  ASSERT_EQ(store_->Set("a%2Fb", "2"), OkStatus());
  EXPECT_EQ(*store_->Get("a/b", In(milliseconds(1))), "1");
  EXPECT_EQ(*store_->Get("a%2Fb", In(milliseconds(1))), "2");
}

INSTANTIATE_TEST_SUITE_P(Stores, StoreTest, testing::Bool(),
                         [](const auto& param) { return param.param ? "file" : "memory"; });

TEST(GlooFactory, RefusesWhatIsNotAnAddressOfThisHost) {
  MemoryStore store;
  CommConfig config;
  config.bind_address = "no.such.host.invalid";
  EXPECT_EQ(MakeGlooFactory(&store, config).status().code(), absl::StatusCode::kInvalidArgument);
  config.bind_address = "192.0.2.1";  // reserved for documentation (RFC 5737)
  EXPECT_EQ(MakeGlooFactory(&store, config).status().code(), absl::StatusCode::kInvalidArgument);
  config.bind_address = "";
  config.interface_name = "nosuchif0";
  EXPECT_EQ(MakeGlooFactory(&store, config).status().code(), absl::StatusCode::kInvalidArgument);
  config.bind_address = "127.0.0.1";
  EXPECT_EQ(MakeGlooFactory(&store, config).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(GlooFactory, ListensOnAnInterface) {
  MemoryStore store;
  CommConfig config;
  config.interface_name = "lo";
  EXPECT_TRUE(MakeGlooFactory(&store, config).ok());
}

TEST(CheckSpec, RefusesWhatIsNoGroup) {
  EXPECT_EQ(CheckSpec({.name = "g", .members = {4, 7}, .my_index = 1}), OkStatus());
  EXPECT_FALSE(CheckSpec({.name = "", .members = {4, 7}, .my_index = 1}).ok());
  EXPECT_FALSE(CheckSpec({.name = "g", .members = {}, .my_index = 0}).ok());
  EXPECT_FALSE(CheckSpec({.name = "g", .members = {4, 7}, .my_index = 2}).ok());
  EXPECT_FALSE(CheckSpec({.name = "g", .members = {4, 4}, .my_index = 0}).ok());
}

}  // namespace
}  // namespace mt::comm
