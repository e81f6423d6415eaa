// One RankMessage per report: a step's record as it is, others field by field. Progress and
// counters are not sent from here: beats carry them.
#include "worker/rank/channel_observer.h"

#include "common/report/loss_units.h"
#include "megatrain/v1/rank.pb.h"
#include "megatrain/v1/types.pb.h"
#include "worker/checkpoint/format/run_list.h"

namespace mt::rank {

using megatrain::v1::RankMessage;

namespace {

megatrain::v1::RankState ToProto(train::TrainState state) {
  switch (state) {
    case train::TrainState::kLoading:
      return megatrain::v1::LOADING;
    case train::TrainState::kReady:
      return megatrain::v1::READY;
    case train::TrainState::kTraining:
      return megatrain::v1::TRAINING;
    case train::TrainState::kHeld:
      return megatrain::v1::HELD;
    case train::TrainState::kExiting:
      return megatrain::v1::EXITING;
  }
  return megatrain::v1::RANK_STATE_UNSPECIFIED;
}

void Fill(const train::CheckpointRecord& record, megatrain::v1::CheckpointInfo* out) {
  out->set_step(record.step);
  out->set_epoch(record.epoch);
  out->set_consumed_samples(record.consumed_samples);
  out->set_path(record.path);
  out->set_bytes(record.bytes);
  out->set_seconds(record.seconds);
  out->set_time_us(record.time_us);
  out->set_stall_seconds(record.stall_seconds);
  out->set_tokens(record.tokens);
  out->set_digest(record.digest);
  out->set_root_id(record.root_id);
  out->set_skipped(record.skipped);
  out->set_run(record.run);
  if (!record.label.empty()) {
    out->mutable_label()->set_tag(record.label.tag);
    out->mutable_label()->mutable_meta()->insert(record.label.meta.begin(),
                                                 record.label.meta.end());
  }
}

void Fill(const checkpoint::RunRecord& run, megatrain::v1::Run* out) {
  out->set_id(run.id);
  out->set_parent(run.parent);
  out->set_restart(run.restart);
  if (run.beginning.named()) out->set_beginning(checkpoint::TextOf(run.beginning));
  if (!run.from) return;
  out->set_from_run(run.from->run);
  out->set_from_step(run.from->id.step);
  out->set_from_digest(run.from->digest);
}

}  // namespace

void ChannelObserver::OnState(train::TrainState state, int64_t step) {
  RankMessage message;
  message.mutable_state()->set_state(ToProto(state));
  message.mutable_state()->set_step(step);
  deps_.send(std::move(message));
}

void ChannelObserver::OnRunInfo(const train::RunInfo& info) {
  RankMessage message;
  auto& out = *message.mutable_job_report()->mutable_run_info();
  out.set_total_steps(info.total_steps);
  out.set_resumed_from_step(info.resumed_from_step);
  out.set_checkpoint_path(info.checkpoint_path);
  out.set_parameters(info.parameters);
  for (const std::string& damaged : info.damaged_checkpoints) {
    out.add_damaged_checkpoints(damaged);
  }
  Fill(info.run, out.mutable_run());
  if (info.other_runs.runs > 0) {
    auto& others = *out.mutable_run()->mutable_other_runs();
    others.set_runs(info.other_runs.runs);
    others.set_checkpoints(info.other_runs.checkpoints);
    others.set_bytes(info.other_runs.bytes);
  }
  megatrain::v1::StartFacts& start = *out.mutable_run()->mutable_start();
  start.set_tokens(info.outlook.tokens);
  start.set_train_passes(info.outlook.train_passes);
  start.set_valid_passes(info.outlook.valid_passes);
  for (const std::string& change : info.changed) start.add_changed(change);
  out.set_run_begins(info.run_begins);
  deps_.send(std::move(message));
}

void ChannelObserver::OnStep(const megatrain::v1::StepRecord& record) {
  RankMessage message;
  *message.mutable_step() = record;
  deps_.send(std::move(message));
}

void ChannelObserver::OnEval(const train::EvalRecord& record) {
  RankMessage message;
  auto& out = *message.mutable_job_report()->mutable_eval();
  out.set_step(record.step);
  out.set_time_us(record.time_us);
  out.set_loss(record.loss);
  out.set_tokens(record.tokens);
  out.set_seconds(record.seconds);
  out.set_split(record.split);
  out.set_final(record.final);
  if (const auto perplexity = report::Perplexity(record.loss)) out.set_perplexity(*perplexity);
  if (record.bits_per_byte) out.set_bits_per_byte(*record.bits_per_byte);
  for (const train::EvalSample& sample : record.samples) {
    auto& to = *out.add_samples();
    to.set_prompt(sample.prompt);
    to.set_text(sample.text);
    to.set_finish(sample.finish);
  }
  deps_.send(std::move(message));
}

void ChannelObserver::OnBench(const megatrain::v1::BenchReport& report) {
  RankMessage message;
  *message.mutable_job_report()->mutable_bench() = report;
  deps_.send(std::move(message));
}

void ChannelObserver::OnCheckpointSaved(const train::CheckpointRecord& record) {
  RankMessage message;
  Fill(record, message.mutable_job_report()->mutable_checkpoint_saved());
  deps_.send(std::move(message));
}

void ChannelObserver::OnCheckpointFailed(int64_t step, const Status& why) {
  RankMessage message;
  message.mutable_job_report()->set_checkpoint_failed(
      fmt::format("step {}: {}", step, base::Message(why)));
  deps_.send(std::move(message));
}

void ChannelObserver::OnSecondCopy(const train::SecondCopyRecord& record) {
  RankMessage message;
  auto& out = *message.mutable_job_report()->mutable_second_copy();
  out.set_step(record.step);
  out.set_epoch(record.epoch);
  out.set_time_us(record.time_us);
  out.set_bytes(record.bytes);
  out.set_seconds(record.seconds);
  if (!record.status.ok()) out.set_error(base::Message(record.status));
  deps_.send(std::move(message));
}

void ChannelObserver::OnCheckpointsDeleted(const std::vector<std::string>& paths) {
  RankMessage message;
  auto& out = *message.mutable_job_report()->mutable_checkpoints_deleted();
  for (const std::string& path : paths) out.add_paths(path);
  deps_.send(std::move(message));
}

void ChannelObserver::OnCommandDone(const train::CommandResult& result) {
  if (result.id.empty()) return;  // the command came without an id: nobody waits for it
  RankMessage message;
  auto& out = *message.mutable_command_done();
  out.set_command_id(result.id);
  out.set_word_step(result.carrier_step);
  out.set_step(result.step);
  if (result.checkpoint) Fill(*result.checkpoint, out.mutable_checkpoint());
  if (!result.error.ok()) out.set_error(base::Message(result.error));
  out.set_held(result.held);
  if (result.profile) {
    out.mutable_profile()->set_trace(result.profile->trace);
    out.mutable_profile()->set_first_step(result.profile->first_step);
    out.mutable_profile()->set_last_step(result.profile->last_step);
    out.mutable_profile()->set_bytes(result.profile->bytes);
    out.mutable_profile()->set_note(result.profile->note);
  }
  for (const train::DecodedText& text : result.texts) {
    auto& to = *out.mutable_decoded()->add_texts();
    to.set_prompt(static_cast<int32_t>(text.prompt));
    to.set_sample(static_cast<int32_t>(text.sample));
    to.set_text(text.text);
    to.set_finish(text.finish);
  }
  deps_.send(std::move(message));
}

}  // namespace mt::rank
