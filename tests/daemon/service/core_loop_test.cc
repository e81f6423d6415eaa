// The loop tells the core when a turn begins, so that a turn that stands still counts for no lease.
#include "daemon/service/core_loop.h"

#include <future>

#include "tests/daemon/core/core_fixture.h"
#include "tests/daemon/core/memory_store.h"

namespace mt::daemon {
namespace {

using std::chrono::seconds;

TEST(CoreLoop, ATurnThatStandsStillLosesNobody) {
  MemoryStore store;
  base::ManualClock clock;
  Core core(&store, &clock);
  ASSERT_TRUE(core.Recover().ok());
  CoreLoop loop(&core, nullptr);
  // Runs it in a turn of its own, and waits until the next turn has begun.
  const auto in_a_turn = [&loop](const std::function<void(Core&)>& task) {
    for (const auto& part : {task, std::function<void(Core&)>([](Core&) {})}) {
      std::promise<void> done;
      loop.Post([&](Core& the_core) {
        part(the_core);
        the_core.ledger().AfterRound([&done](const Status&) { done.set_value(); });
      });
      done.get_future().wait();
    }
  };
  const auto link = std::make_shared<FakeLink>();
  in_a_turn([&](Core& the_core) {
    v1::WorkerMessage message;
    v1::Register* hello = message.mutable_register_();
    hello->set_node("n1");
    hello->set_worker_uid("w");
    hello->add_slots()->set_device(v1::CPU_SLOT);
    the_core.sessions().OnMessage(the_core.sessions().Open(link), message);
  });
  int lost = -1;
  const auto look = [&lost](Core& the_core) {
    v1::ListNodesResponse nodes;
    the_core.api().nodes().List(&nodes);
    lost = nodes.nodes(0).state() != v1::NODE_READY;
  };
  in_a_turn([&clock](Core&) { clock.Advance(seconds(60)); });
  in_a_turn([](Core& the_core) { the_core.Tick(); });
  in_a_turn(look);
  EXPECT_EQ(lost, 0) << "it stood still itself";
  for (int i = 0; i < 31; ++i) in_a_turn([&clock](Core&) { clock.Advance(seconds(1)); });
  in_a_turn([](Core& the_core) { the_core.Tick(); });
  in_a_turn(look);
  EXPECT_EQ(lost, 1) << "it could have heard it";
  loop.Stop();
}

}  // namespace
}  // namespace mt::daemon
