// One rank's run, whoever started it: compute backend, process groups, trainer.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/ops/backend.h"
#include "worker/comm/rendezvous_store.h"
#include "worker/train/trainer.h"

namespace mt::rank {

struct RunArgs {
  const megatrain::v1::JobSpec* job = nullptr;  // completed and resolved
  std::string job_uid;
  int64_t epoch = 0;                        // the control plane's
  std::vector<std::string> ended_job_uids;  // of the same checkpoint directory
  int rank = 0;
  int world_size = 1;
  std::string gpu;  // UUID of the GPU that the rank was given; empty: the first
  // Made already (compute_device.h); nullptr: made here, of the kind that the job says.
  std::unique_ptr<kernels::Backend> backend;
  std::string data_root;
  std::string checkpoint_root;
  std::string cache_root;
  std::string address;                     // that the rank listens on for its peers
  comm::RendezvousStore* store = nullptr;  // with more than one rank
  train::TrainObserver* observer = nullptr;
  train::CommandSource* commands = nullptr;  // on rank 0
  bool hold = false;                         // wait once ready
  std::chrono::milliseconds host_delay{0};   // TrainArgs::host_delay
  // Told how long the groups took to come up; may be empty.
  std::function<void(double seconds)> on_comm_init;
  // Called with the groups once they exist and with nullptr before they go; may be empty.
  std::function<void(train::RankGroups*)> on_groups;
  // Likewise with the trainer, which tells where the device stands; may be empty.
  std::function<void(const train::Trainer*)> on_trainer;
};

// Blocks until the run has ended; no exception leaves.
train::TrainResult Run(RunArgs args);

}  // namespace mt::rank
