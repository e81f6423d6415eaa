// Messages that workers and ranks send to the coordinator, as tests build them, and short views of
// its answers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megatrain/v1/types.pb.h"
#include "megatrain/v1/worker.pb.h"

namespace mt::daemon {

namespace v1 = megatrain::v1;

inline v1::WorkerMessage RankMessage(const v1::Job& job, int rank, v1::RankState state) {
  v1::WorkerMessage message;
  v1::RankReport* report = message.mutable_rank_report();
  report->set_job_uid(job.uid());
  report->set_epoch(job.epoch());
  report->mutable_status()->set_rank(rank);
  report->mutable_status()->set_state(state);
  return message;
}

inline v1::WorkerMessage StepsMessage(const v1::Job& job, int64_t first, int64_t last) {
  v1::WorkerMessage message;
  message.mutable_steps()->set_job_uid(job.uid());
  message.mutable_steps()->set_epoch(job.epoch());
  for (int64_t step = first; step <= last; ++step)
    message.mutable_steps()->add_steps()->set_step(step);
  return message;
}

inline v1::WorkerMessage EndedMessage(const v1::Job& job, int64_t step, bool completed,
                                      bool save_failed = false) {
  v1::WorkerMessage message;
  message.mutable_job_report()->set_job_uid(job.uid());
  message.mutable_job_report()->set_epoch(job.epoch());
  v1::TrainingEnded* ended = message.mutable_job_report()->mutable_training_ended();
  ended->set_last_step(step);
  ended->set_completed(completed);
  ended->set_final_save_failed(save_failed);
  if (save_failed) ended->set_message("No space left on device");
  return message;
}

// Rank 0's answer to it.
inline v1::WorkerMessage DoneMessage(const v1::Command& command, int64_t word_step, int64_t step) {
  v1::WorkerMessage message;
  message.mutable_job_report()->set_job_uid(command.job_uid());
  message.mutable_job_report()->set_epoch(command.epoch());
  v1::CommandDone* done = message.mutable_job_report()->mutable_command_done();
  done->set_command_id(command.command_id());
  done->set_word_step(word_step);
  done->set_step(step);
  return message;
}

// Rank 0's answer to a release whose save failed: every rank waits.
inline v1::WorkerMessage HeldMessage(const v1::Command& command, int64_t word_step, int64_t step) {
  v1::WorkerMessage message = DoneMessage(command, word_step, step);
  v1::CommandDone* done = message.mutable_job_report()->mutable_command_done();
  done->set_error("No space left on device");
  done->set_held(true);
  return message;
}

inline v1::CheckpointInfo Saved(int64_t step) {
  v1::CheckpointInfo info;
  info.set_step(step);
  info.set_epoch(1);
  info.set_path("/ckpt/step-" + std::to_string(step));
  return info;
}

inline v1::WorkerMessage SavedMessage(const v1::Job& job, int64_t step) {
  v1::WorkerMessage message;
  message.mutable_job_report()->set_job_uid(job.uid());
  message.mutable_job_report()->set_epoch(job.epoch());
  *message.mutable_job_report()->mutable_checkpoint_saved() = Saved(step);
  return message;
}

inline v1::HeldAllocation Held(const v1::Job& job, v1::RankState state,
                               const std::vector<int>& ranks = {0}) {
  v1::HeldAllocation held;
  held.set_job_uid(job.uid());
  held.set_epoch(job.epoch());
  for (const int rank : ranks) {
    v1::RankStatus* status = held.add_ranks();
    status->set_rank(rank);
    status->set_state(state);
  }
  return held;
}

inline std::string ConditionsOf(const v1::Job& job) {
  std::string types;
  for (const v1::Condition& condition : job.conditions())
    types += (types.empty() ? "" : " ") + condition.type();
  return types;
}

}  // namespace mt::daemon
