// A batch that the store has committed survives a crash that loses whatever was not synced; one
// under way is there as a whole or not at all.
#include <filesystem>
#include <map>

#include <gtest/gtest.h>

#include "common/base/ids.h"
#include "daemon/store/sqlite_store.h"
#include "tests/common/base/crash_log.h"
#include "tests/daemon/store/new_store.h"

namespace mt::daemon {
namespace {

using crash::CrashLog;
using Rows = std::map<std::string, std::string>;

Rows Jobs(Store& store) {
  Rows rows;
  EXPECT_TRUE(store
                  .ForEach(Table::kJobs,
                           [&](std::string_view key, std::string_view value) {
                             rows.emplace(key, value);
                             return OkStatus();
                           })
                  .ok());
  return rows;
}

TEST(StoreDurabilityTest, ABatchIsWholeOrNotThereAndSurelyThereOnceItIsCommitted) {
  const std::string top =
      std::filesystem::canonical(std::filesystem::temp_directory_path()).string() +
      "/mt-durable-store-" + base::RandomHex(6);
  std::filesystem::create_directories(top + "/disk");
  CrashLog log(top + "/disk");
  // Before each commit, and after the last.
  std::vector<Rows> states{{}};
  {
    auto store = OpenOrMakeStore(top + "/disk/state");
    ASSERT_TRUE(store.ok()) << store.status();
    log.Mark("0");
    for (int i = 1; i <= 3; ++i) {
      const std::string old = "a" + std::to_string(i - 1), key = std::to_string(i);
      ASSERT_TRUE((*store)
                      ->Commit({{Table::kJobs, "a" + key, "one"},
                                {Table::kJobs, "b" + key, std::string(5'000, 'x')},
                                {Table::kJobs, old, std::nullopt}})
                      .ok());
      log.Mark(key);
      states.push_back(Jobs(**store));
    }
    EXPECT_EQ(states.back().size(), 4U);
  }
  log.Stop();
  ASSERT_EQ(log.Check(), "");
  for (size_t done = 0; done < states.size(); ++done) {
    const bool last = done + 1 == states.size();
    const size_t from = log.Before(std::to_string(done));
    const size_t to = last ? from : log.Before(std::to_string(done + 1));
    const std::string complaint =
        log.FirstComplaint(from, to, top + "/after", [&](const std::string& left) -> std::string {
          auto store = SqliteStore::Open(left + "/state");
          if (!store.ok()) return base::Message(store.status());
          const Rows rows = Jobs(**store);
          if (rows == states[done] || (!last && rows == states[done + 1])) return "";
          return "there are " + std::to_string(rows.size()) + " rows";
        });
    EXPECT_TRUE(complaint.empty()) << complaint;
  }
  std::filesystem::remove_all(top);
}

}  // namespace
}  // namespace mt::daemon
