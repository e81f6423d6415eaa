// `get orphans`, `adopt` and `node kill-orphan`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/client/fake_coordinator.h"

namespace mt::client {
namespace {

using testing::HasSubstr;

constexpr char kUid[] = "0f6cb1a4-1111-2222-3333-444455556666";

TEST(OrphanCommands, TheListSaysWhatRunsWhereAndWhyItIsNotAdopted) {
  FakeCoordinator server;
  EXPECT_THAT(Mtctl(&server, {"get", "orphans"}).err + Mtctl(&server, {"get", "orphans"}).out,
              HasSubstr("no orphans"));
  v1::Orphan* orphan = server.state().orphans.add_orphans();
  orphan->set_job_uid(kUid);
  orphan->set_job_name("tiny");
  orphan->set_epoch((int64_t{5} << 20) + 3);
  orphan->set_ranks(1);
  orphan->set_world_size(2);
  orphan->add_nodes("a");
  orphan->add_nodes("b");
  orphan->set_why("rank 1 of 2 is on no node that was heard");
  const Ran ran = Mtctl(&server, {"get", "orphans"});
  EXPECT_EQ(ran.code, kExitOk) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("tiny"));
  EXPECT_THAT(ran.out, HasSubstr("5.3"));
  EXPECT_THAT(ran.out, HasSubstr("1 of 2"));
  EXPECT_THAT(ran.out, HasSubstr("a,b"));
  EXPECT_THAT(ran.out, HasSubstr("rank 1 of 2 is on no node that was heard"));
  EXPECT_EQ(Mtctl(&server, {"get", "orphans", "-o", "name"}).out, std::string(kUid) + "\n");
}

TEST(OrphanCommands, AJobIsAdoptedByNameOrUid) {
  FakeCoordinator server;
  EXPECT_EQ(Mtctl(&server, {"adopt", "tiny", "--reason", "restored"}).out,
            "job tiny (uid-1) goes on with the 1 ranks that were found\n");
  EXPECT_EQ(server.state().adopted.name(), "tiny");
  EXPECT_EQ(server.state().adopted.reason(), "restored");
  EXPECT_EQ(Mtctl(&server, {"adopt", kUid}).code, kExitOk);
  EXPECT_EQ(server.state().adopted.job_uid(), kUid);
  EXPECT_EQ(server.state().adopted.name(), "");
  server.state().refuse = {grpc::StatusCode::FAILED_PRECONDITION, "rank 1 of 2 is on no node"};
  const Ran refused = Mtctl(&server, {"adopt", "tiny"});
  EXPECT_EQ(refused.code, kExitInvalidInput);
  EXPECT_THAT(refused.err, HasSubstr("rank 1 of 2"));
}

TEST(OrphanCommands, KillingOrphansAsksFirst) {
  FakeCoordinator server;
  EXPECT_NE(Mtctl(&server, {"node", "kill-orphan", "a", kUid}).code, kExitOk);
  EXPECT_EQ(server.state().killed.node(), "");
  const Ran killed = Mtctl(&server, {"node", "kill-orphan", "a", kUid, "--yes"});
  EXPECT_EQ(killed.out, "2 orphaned ranks are being ended\n");
  EXPECT_EQ(server.state().killed.node(), "a");
  EXPECT_EQ(server.state().killed.job_uid(), kUid);
}

}  // namespace
}  // namespace mt::client
