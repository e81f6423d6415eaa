// Tokens are 128 random bits in hexadecimal.
#include "worker/node/ranks/allocation_record.h"

#include "common/base/ids.h"
#include "megatrain/v1/agent_state.pb.h"
#include "worker/node/ranks/job_names.h"

namespace mt::node {

using megatrain::v1::AllocationRecord;
using megatrain::v1::Assign;

std::unique_ptr<AllocationRecord> NewRecord(const Assign& assign, const std::string& log_root,
                                            const SlotTable& slots) {
  constexpr int kTokenBytes = 16;
  auto record = std::make_unique<AllocationRecord>();
  *record->mutable_assign() = assign;
  for (const auto& placement : assign.ranks()) {
    auto& rank = *record->add_ranks();
    rank.set_rank(placement.rank());
    rank.set_slot(placement.slot());
    rank.set_gpu(slots.GpuOf(placement.slot()));
    rank.set_token(base::RandomHex(kTokenBytes));
    rank.set_log_file(
        RankLogFile(log_root, assign.spec().name(), assign.job_uid(), placement.rank()));
  }
  return record;
}

}  // namespace mt::node
