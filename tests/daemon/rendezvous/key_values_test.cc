// The key-value space of a job's epoch: waiting, forgetting, bounds.
#include "daemon/rendezvous/key_values.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace mt::daemon {
namespace {

TEST(KeyValues, GetWaitsForSet) {
  KeyValues values;
  const JobEpoch job{"j", 1};
  EXPECT_EQ(values.Get(job, "addr/0", "n1"), nullptr);
  EXPECT_EQ(values.Get(job, "addr/0", "n2"), nullptr);
  EXPECT_EQ(values.Get(job, "addr/0", "n1"), nullptr);
  EXPECT_EQ(*values.Set(job, "addr/0", "10.0.0.1:5"), (std::vector<std::string>{"n1", "n2"}));
  ASSERT_NE(values.Get(job, "addr/0", "n3"), nullptr);
  EXPECT_EQ(*values.Get(job, "addr/0", "n3"), "10.0.0.1:5");
  EXPECT_EQ(values.Get({"j", 2}, "addr/0", "n1"), nullptr) << "epochs share nothing";
}

TEST(KeyValues, ForgetsWaitersAndJobs) {
  KeyValues values;
  EXPECT_EQ(values.Get({"j", 1}, "k", "n1"), nullptr);
  values.DropWaiter("n1");
  EXPECT_TRUE(values.Set({"j", 1}, "k", "v")->empty());
  ASSERT_TRUE(values.Set({"j", 2}, "k", "v").ok());
  ASSERT_TRUE(values.Set({"jj", 1}, "k", "v").ok());
  EXPECT_EQ(values.Erase("j").size(), 2u);
  EXPECT_EQ(values.num_jobs(), 1u);
}

TEST(KeyValues, IsBounded) {
  KeyValues values;
  const std::string big(kMaxRendezvousValueBytes, 'x');
  EXPECT_FALSE(values.Set({"j", 1}, "k", big + "x").ok());
  EXPECT_FALSE(values.Set({"j", 1}, "", "v").ok());
  EXPECT_FALSE(values.Set({"j", 1}, std::string(kMaxRendezvousKeyBytes + 1, 'k'), "v").ok());
  int stored = 0;
  while (values.Set({"j", 1}, std::to_string(stored), big).ok()) ++stored;
  EXPECT_EQ(stored, 63);
  EXPECT_TRUE(values.Set({"j", 1}, "0", big).ok()) << "replacing needs no room";
}

}  // namespace
}  // namespace mt::daemon
