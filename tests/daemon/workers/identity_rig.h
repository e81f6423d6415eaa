// A host that registers under a node's name, as the tests of names and of report numbers use it.
#pragma once

#include <string>
#include <vector>

#include "tests/daemon/core/core_fixture.h"

namespace mt::daemon {

// A host as it registers. What its agent is given stays with it.
struct Host {
  std::string boot = "boot-1";
  std::string machine = "machine-1";
  std::string address = "10.0.0.1";
  std::string secret = {};
  int64_t generation = 0;
  std::vector<v1::HeldAllocation> held = {};
  int64_t lowest_seq = 0;
  int64_t newest_seq = 0;
};

class IdentityTest : public CoreTest {
 protected:
  // An agent process on that host registers as `worker`; true where it was let in.
  bool Register(Worker* worker, const Host& host, int slots = 1) {
    worker->link = std::make_shared<FakeLink>();
    worker->session = core_->sessions().Open(worker->link);
    v1::WorkerMessage message;
    v1::Register* hello = message.mutable_register_();
    hello->set_node(worker->node);
    hello->set_worker_uid(worker->uid);
    hello->set_boot_id(host.boot);
    hello->set_machine_id(host.machine);
    hello->set_address(host.address);
    hello->set_node_secret(host.secret);
    hello->set_generation(host.generation);
    hello->set_lowest_seq(host.lowest_seq);
    hello->set_newest_seq(host.newest_seq);
    for (const v1::HeldAllocation& held : host.held) *hello->add_allocations() = held;
    for (int i = 0; i < slots; ++i) {
      hello->add_slots()->set_index(i);
      hello->mutable_slots(i)->set_device(v1::CPU_SLOT);
    }
    core_->sessions().OnMessage(worker->session, message);
    Settle();
    return !worker->link->closed;
  }
  static Worker NewProcess(const std::string& node) {
    return {.node = node, .uid = base::NewUid(), .link = nullptr};
  }
  // The secret that the coordinator gave in this session, if any.
  static const v1::Registered& Answer(const Worker& worker) {
    for (const auto& message : worker.link->received) {
      if (message.has_registered()) return message.registered();
    }
    static const v1::Registered none;
    return none;
  }
  // The agent writes down what it was given, and says so.
  void KeepSecret(const Worker& worker, Host* host) {
    host->secret = Answer(worker).node_secret();
    host->generation = Answer(worker).generation();
    v1::WorkerMessage kept;
    kept.mutable_secret_kept()->set_generation(host->generation);
    core_->sessions().OnMessage(worker.session, kept);
    Settle();
  }
  void Send(const Worker& worker, v1::WorkerMessage message, int64_t seq) {
    message.set_seq(seq);
    core_->sessions().OnMessage(worker.session, message);
    Settle();
  }
  v1::Node Node(const std::string& name) {
    v1::ListNodesResponse nodes;
    core_->api().nodes().List(&nodes);
    for (const v1::Node& node : nodes.nodes()) {
      if (node.name() == name) return node;
    }
    return {};
  }
  std::string ReasonOf(const Worker& worker) { return rpc::ReasonOf(worker.link->end); }
};

}  // namespace mt::daemon
