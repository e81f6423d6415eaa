// Runs one rank, whoever started it: makes the compute backend and the process groups, trains, and
// turns every exception into a status.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/ops/backend.h"
#include "worker/comm/rendezvous_store.h"
#include "worker/train/trainer.h"

namespace mt::rank {

// What to run and where to report. Pointers are not owned and must outlive the run.
struct RunArgs {
  const megatrain::v1::JobSpec* job = nullptr;  // completed and resolved
  std::string job_uid;
  int64_t epoch = 0;                           // of the job's placement
  std::vector<std::string> ended_job_uids;     // jobs whose directory may be taken over
  std::optional<checkpoint::ResumeBase> base;  // TrainArgs::base
  std::string restart = {};                    // TrainArgs::restart
  int rank = 0;
  int world_size = 1;
  std::string gpu;  // UUID of the assigned GPU; empty: the one whose ordinal is the rank
  // A backend that exists already (compute_device.h); nullptr: Run makes the one that the job
  // names.
  std::unique_ptr<kernels::Backend> backend;
  std::string data_root;
  std::string checkpoint_root;
  bool make_checkpoint_root = false;
  std::string cache_root;
  std::string checkpoint_root_id = {};                    // TrainArgs::checkpoint_root_id
  std::function<StatusOr<bool>()> epoch_open = {};        // TrainArgs::epoch_open, on rank 0
  std::function<std::vector<int64_t>()> kept_steps = {};  // TrainArgs::kept_steps, on rank 0
  std::string address;                                    // where the rank listens for its peers
  std::string node = {};                   // that the rank is on; empty: of no cluster
  comm::RendezvousStore* store = nullptr;  // required for more than one rank
  bool tcp_only = false;                   // ranks of one host share no memory; all alike
  train::TrainObserver* observer = nullptr;
  train::CommandSource* commands = nullptr;  // rank 0 only
  bool hold = false;                         // wait in the held state once ready
  std::string trace_directory = {};          // TrainArgs::trace_directory
  std::string trace_file = {};               // BenchRun::Args::trace_file
  std::chrono::milliseconds host_delay{0};   // TrainArgs::host_delay
  // Called with the time that the creation of the groups took; may be empty.
  std::function<void(double seconds)> on_comm_init;
  // Called with the groups once they exist and with nullptr before they are destroyed; may be
  // empty.
  std::function<void(parallel::RankGroups*)> on_groups;
  // The same for the trainer, from which the device's position can be read; may be empty.
  std::function<void(const train::Trainer*)> on_trainer;
};

// Blocks until the run has ended. The result's status carries every error; no exception is thrown.
train::TrainResult Run(RunArgs args);

}  // namespace mt::rank
