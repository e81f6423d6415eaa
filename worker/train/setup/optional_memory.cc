// What is free is looked up by each rank, and judged by all alike: over the texts of all ranks.
#include "worker/train/setup/optional_memory.h"

#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/base/ids.h"
#include "common/base/log.h"
#include "common/spec/derived.h"
#include "megatrain/v1/job.pb.h"
#include "worker/memory/machine_room.h"
#include "worker/train/setup/agreement.h"

namespace mt::train {
namespace {

using Room = engine::EnginePlan::Room;

// Collective: the first rank without room, or the number of ranks.
StatusOr<int64_t> ShortRank(checkpoint::Exchange* exchange, const memory::RankRoom& mine) {
  const nlohmann::json text = {mine.machine, mine.needed_bytes, mine.available_bytes};
  ASSIGN_OR_RETURN(const std::vector<std::string> all, exchange->AllGather(text.dump()));
  std::vector<memory::RankRoom> ranks;
  for (const std::string& one : all) {
    const nlohmann::json rank = nlohmann::json::parse(one);
    ranks.push_back(
        {.machine = rank.at(0), .needed_bytes = rank.at(1), .available_bytes = rank.at(2)});
  }
  return memory::RankWithoutRoom(ranks);
}

}  // namespace

Status PlanInputs(int64_t later_bytes, checkpoint::Exchange* exchange,
                  std::optional<engine::EnginePlan>* plan) {
  if (!plan->has_value()) return base::Internal("no engine was planned");
  if (!(*plan)->CanKeepInputs()) return OkStatus();
  StatusOr<engine::EnginePlan> keeping = (*plan)->WithInputsKept();
  RETURN_IF_ERROR(Agree(exchange, keeping.status()));
  const bool on_gpu = keeping->on_gpu();
  const StatusOr<Room> room = on_gpu ? keeping->GpuRoom() : keeping->HostRoomWithSnapshot();
  RETURN_IF_ERROR(Agree(exchange, room.status()));
  // A GPU is a machine of its own here.
  const std::string machine =
      on_gpu ? fmt::format("{}/{}", base::BootId(), exchange->rank()) : base::BootId();
  ASSIGN_OR_RETURN(const int64_t short_rank,
                   ShortRank(exchange, {machine, room->needed + later_bytes, room->available}));
  if (short_rank == exchange->size()) {
    plan->emplace(*std::move(keeping));
  } else {
    log::Info("no room to keep gathered inputs: backward gathers them again",
              {{"rank", short_rank}});
  }
  return OkStatus();
}

Status PlanSnapshot(const megatrain::v1::JobSpec& job, int64_t later_bytes,
                    checkpoint::Exchange* exchange, std::optional<engine::EnginePlan>* plan) {
  if (!job.checkpoint().async_save() || spec::CheckpointDirectory(job).empty()) return OkStatus();
  if (!plan->has_value()) return base::Internal("no engine was planned");
  const StatusOr<Room> room = (*plan)->HostRoomWithSnapshot();
  RETURN_IF_ERROR(Agree(exchange, room.status()));
  // The copy lies in host memory, also of what a GPU has.
  const int64_t needed = room->needed + ((*plan)->on_gpu() ? 0 : later_bytes);
  ASSIGN_OR_RETURN(const int64_t short_rank,
                   ShortRank(exchange, {base::BootId(), needed, room->available}));
  if (short_rank == exchange->size()) {
    (*plan)->ReserveSnapshot();
  } else {
    log::Warn("no room in host memory for the copy of saves: each holds up training as it writes",
              {{"rank", short_rank}, {"bytes_here", (*plan)->SnapshotBytes()}});
  }
  return OkStatus();
}

}  // namespace mt::train
