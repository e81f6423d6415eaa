// For tests of backups: a state folder with a store and a history, saved by a runner whose core is
// a thread of the test.
#pragma once

#include <deque>
#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <thread>

#include <gtest/gtest.h>

#include "common/base/files.h"
#include "common/base/ids.h"
#include "common/base/mutex.h"
#include "daemon/backup/archive.h"
#include "daemon/backup/backup_runner.h"
#include "megatrain/v1/store.pb.h"
#include "tests/daemon/store/new_store.h"

namespace mt::daemon {

namespace fs = std::filesystem;
namespace v1 = megatrain::v1;

inline void Put(const std::string& path, const std::string& content) {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << content;
}

inline std::string Hash(const std::string& bytes) {
  RunningSum sum;
  sum.Add(bytes);
  return fmt::format("{}", sum.Get());
}

inline std::map<std::string, std::string> RowsOf(Store& store, Table table) {
  std::map<std::string, std::string> rows;
  EXPECT_TRUE(store
                  .ForEach(table,
                           [&rows](std::string_view key, std::string_view value) {
                             rows.emplace(key, value);
                             return OkStatus();
                           })
                  .ok());
  return rows;
}

// What the core's loop does with tasks, and commits of its own between them.
class FakeCore {
 public:
  explicit FakeCore(std::function<void()> round)
      : round_(std::move(round)), thread_([this] { Run(); }) {}
  ~FakeCore() {
    {
      const base::MutexLock lock(&mu_);
      ended_ = true;
    }
    thread_.join();
  }
  void Post(std::function<void()> task) {
    const base::MutexLock lock(&mu_);
    tasks_.push_back(std::move(task));
  }

 private:
  void Run() {
    for (bool ended = false; !ended;) {
      std::function<void()> task;
      {
        const base::MutexLock lock(&mu_);
        ended = ended_ && tasks_.empty();
        if (!tasks_.empty()) {
          task = std::move(tasks_.front());
          tasks_.pop_front();
        }
      }
      if (task) task();
      if (round_) round_();
    }
  }
  std::function<void()> round_;
  base::Mutex mu_;
  std::deque<std::function<void()>> tasks_ GUARDED_BY(mu_);
  bool ended_ GUARDED_BY(mu_) = false;
  std::thread thread_;
};

class BackupTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto store = OpenOrMakeStore(state_);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = std::move(store).value();
    Put(state_ + "/history/journal", "the journal");
    Put(state_ + "/history/uid-1.steps", std::string(300'000, 's'));
    Put(state_ + "/history/uid-1.evals", "");
    Put(state_ + "/history/unknown/uid-0.steps", "of a job that is not known");
  }
  void TearDown() override {
    store_.reset();
    fs::remove_all(folder_);
  }
  void Fill(int rows, int64_t term = 0) {
    std::vector<Write> batch;
    for (int i = 0; i < rows; ++i)
      batch.push_back({Table::kJobs, fmt::format("job-{:06}", i), std::string(1'000, 'v'), 1});
    v1::StoredCluster cluster;
    cluster.set_cluster_id("the-cluster");
    cluster.set_cluster_key("secret");
    cluster.set_term(term);
    cluster.set_restore_settled(true);
    batch.push_back({Table::kCluster, "self", cluster.SerializeAsString(), 1});
    ASSERT_TRUE(store_->Commit(batch).ok());
  }
  // The archive, whole, with `round` between the steps of the copy.
  Status Save(const std::function<void()>& round = nullptr, std::string* out = nullptr) {
    std::string bytes;
    std::promise<Status> end;
    {
      FakeCore core(round);
      BackupRunner runner(store_.get(), state_);
      runner.Start(
          [this, &core](std::function<void()> task) {
            ++steps_;
            core.Post(std::move(task));
          },
          {.take =
               [&bytes](const std::string& more) {
                 bytes += more;
                 return true;
               },
           .end = [&end](const Status& status) { end.set_value(status); }});
      const Status status = end.get_future().get();
      if (!status.ok()) return status;
    }
    Put(file_, bytes);
    if (out != nullptr) *out = bytes;
    return OkStatus();
  }
  const std::string folder_ = ::testing::TempDir() + "mt-backup-" + base::RandomHex(6);
  const std::string state_ = folder_ + "/state";
  const std::string file_ = folder_ + "/saved.tar";
  const std::string restored_ = folder_ + "/restored";
  std::unique_ptr<SqliteStore> store_;
  int steps_ = 0;  // tasks of the core that Save has posted
};

}  // namespace mt::daemon
