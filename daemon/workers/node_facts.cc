// Limits of names and slots, and the copy into the row.
#include "daemon/workers/node_facts.h"

#include <set>
#include <string>

#include "common/base/plain_text.h"
#include "megatrain/v1/types.pb.h"
#include "megatrain/v1/worker.pb.h"

namespace mt::daemon {
namespace {

constexpr int kMaxSlots = 1'024;

Status CheckSlots(const std::string& node,
                  const google::protobuf::RepeatedPtrField<v1::Slot>& given) {
  std::set<int> slots;
  for (const v1::Slot& slot : given) {
    if (slot.index() < 0 || !slots.insert(slot.index()).second) {
      return base::InvalidArgument("node {}: slot {} is negative or given twice", node,
                                   slot.index());
    }
  }
  if (slots.size() > kMaxSlots) {
    return base::InvalidArgument("node {}: {} slots ({} are possible)", node, slots.size(),
                                 kMaxSlots);
  }
  return OkStatus();
}

}  // namespace

Status CheckRegister(const v1::Register& hello) {
  RETURN_IF_ERROR(base::CheckName("a node's name", hello.node(), base::kMaxNodeNameBytes));
  for (const auto& [name, value] : hello.labels()) {
    RETURN_IF_ERROR(base::CheckLabel("node " + hello.node(), name, value));
  }
  if (hello.worker_uid().empty())
    return base::InvalidArgument("node {}: worker_uid is missing", hello.node());
  // A node whose GPUs do not work is shown with the reason, although it has nothing to offer.
  if (hello.slots().empty() && hello.gpu_problem().empty()) {
    return base::InvalidArgument("node {}: 0 slots (1 to {} are possible)", hello.node(),
                                 kMaxSlots);
  }
  return CheckSlots(hello.node(), hello.slots());
}

void FillNode(const v1::Register& hello, int64_t now_us, v1::Node* node) {
  node->set_name(hello.node());
  node->set_uid(hello.worker_uid());
  *node->mutable_slots() = hello.slots();
  for (v1::Slot& slot : *node->mutable_slots()) slot.clear_job_uid();
  node->set_cores(hello.cores());
  node->set_memory_bytes(hello.memory_bytes());
  node->set_version(hello.version());
  node->set_address(hello.address());
  node->set_boot_id(hello.boot_id());
  *node->mutable_labels() = hello.labels();
  node->set_gpu_problem(hello.gpu_problem());
  node->set_checkpoint_root_id(hello.checkpoint_root_id());
  node->set_last_heartbeat_us(now_us);
  node->set_registered_us(now_us);
}

}  // namespace mt::daemon
