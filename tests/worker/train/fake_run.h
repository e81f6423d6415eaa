// A run without an engine, to see what commands make a run do and when.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "worker/train/command_relay.h"

namespace mt::train {

using std::chrono::seconds;

// A run without an engine: writes down what it is made to do, and hands each step's bits back as if
// they were the sum over all ranks.
class FakeRun final : public CommandTarget, public CommandSource, public TrainObserver {
 public:
  explicit FakeRun(bool is_rank_0 = true) : is_rank_0_(is_rank_0) {}

  void Build(seconds exit_after = seconds(0)) {
    relay_.emplace(CommandRelay::Args{.source = this,
                                      .target = this,
                                      .observer = this,
                                      .cursor = &cursor,
                                      .clock = &clock,
                                      .is_rank_0 = is_rank_0_,
                                      .exit_after = exit_after});
  }
  CommandRelay& relay() { return *relay_; }

  // Runs steps up to this one, each taking a second, or to an ending.
  StatusOr<std::optional<Ending>> RunTo(int64_t last) {
    while (cursor.last() < last) {
      const int64_t step = cursor.next();
      auto ending = relay_->ActBefore(step);
      if (!ending.ok() || *ending) return ending;
      carried[step] = relay_->Take(step);
      if (from_rank_0.contains(step)) carried[step] = from_rank_0[step];
      cursor.Enqueue();
      clock.Advance(seconds(1));
    }
    return std::optional<Ending>();
  }

  // CommandTarget.
  Status ReadUpTo(int64_t step) override {
    while (cursor.read() < step) {
      cursor.Count();
      const int64_t k = cursor.Read();
      relay_->Received(k, carried[k]);
    }
    return OkStatus();
  }
  Status Save() override {
    Note("save");
    EXPECT_EQ(cursor.read(), cursor.last()) << "every outcome is known before a save";
    is_saved = save_ends_run.ok() && !save_fails;
    return save_ends_run;
  }
  Status BeginSave(bool requested) override {
    if (!beside) return Save();
    Note(requested ? "begin a save" : "begin a save if there is none");
    under_way = true;
    return OkStatus();
  }
  bool IsSaveOver() const override { return over; }
  Status EndSave() override {
    Note("end the save");
    over = under_way = false;
    return save_ends_run;
  }
  bool IsSaved() const override { return is_saved; }
  Status Update(const std::optional<RunSettings>& asked, Status* refused) override {
    Note(asked ? "update to " + std::to_string(asked->log_every) : "update");
    *refused = update_refused;
    return OkStatus();
  }
  StatusOr<CommandBits> ReduceIdle(const CommandBits& mine) override {
    Note("idle");
    if (from_rank_0_idle.empty()) return mine;
    const CommandBits bits = from_rank_0_idle.front();
    from_rank_0_idle.pop_front();
    return bits;
  }
  Status Profile(const std::optional<int64_t>& asked, Status* refused) override {
    Note(asked ? fmt::format("profile {} steps", *asked) : "profile");
    *refused = profile_refused;
    return OkStatus();
  }
  std::optional<StatusOr<ProfileRecord>> Profiled() const override { return profiled; }
  Status Decode(const std::optional<TextRequest>& asked,
                StatusOr<std::vector<DecodedText>>* texts) override {
    Note(asked ? "write behind " + asked->prompts.at(0) : "write");
    *texts = std::vector<DecodedText>();
    if (asked) (*texts)->push_back({.text = "behind " + asked->prompts.at(0)});
    if (!decode_refused.ok()) *texts = decode_refused;
    return OkStatus();
  }
  Status OnHeld() override {
    Note("held");
    return OkStatus();
  }
  void OnResumed(base::MonotonicTime since, base::MonotonicTime now) override {
    Note("resumed after " + std::to_string((now - since) / seconds(1)) + " s");
  }
  bool IsSaveDueByTime() const override { return save_due; }
  std::optional<StatusOr<CheckpointRecord>> SavedSince(int64_t step) const override {
    using Found = std::optional<StatusOr<CheckpointRecord>>;
    if (under_way) return std::nullopt;
    if (!saved.ok()) return Found(saved);
    if (save_fails) return Found(base::Internal("disk full"));
    return Found(CheckpointRecord{.step = step});
  }

  Status Label(const CheckpointRecord& labelled, const checkpoint::Label& label) override {
    Note(fmt::format("label step {} {}", labelled.step, label.tag));
    return label_fails;
  }

  // CommandSource: the command of this poll, which are counted from 1; a second passes with each.
  std::optional<Command> Poll() override {
    ++polls;
    if (relay_->held()) clock.Advance(seconds(1));
    const auto found = script.find(polls);
    return found == script.end() ? std::nullopt : std::optional(found->second);
  }

  // TrainObserver.
  void OnCommandDone(const CommandResult& result) override { done.push_back(result); }
  void OnState(TrainState state, int64_t step) override { states.emplace_back(state, step); }

  base::ManualClock clock;
  StepCursor cursor;
  std::map<int64_t, Command> script;
  std::map<int64_t, CommandBits> carried;      // by step
  std::map<int64_t, CommandBits> from_rank_0;  // by step: what another rank's relay has sent
  std::deque<CommandBits> from_rank_0_idle;    // the same, by idle reduction
  Status save_ends_run, update_refused, saved, label_fails, profile_refused, decode_refused;
  std::optional<StatusOr<ProfileRecord>> profiled;
  bool beside = false;     // saves go on beside training
  bool under_way = false;  // one does
  bool over = false;       // rank 0's part of it has ended
  bool save_due = false;
  bool save_fails = false;  // without ending the run
  bool is_saved = false;
  int64_t polls = 0;
  std::vector<std::string> calls;  // "<last step done>: <call>"
  std::vector<CommandResult> done;
  std::vector<std::pair<TrainState, int64_t>> states;

 private:
  void Note(const std::string& call) {
    calls.push_back(std::to_string(cursor.last()) + ": " + call);
  }

  const bool is_rank_0_;
  std::optional<CommandRelay> relay_;
};

using Calls = std::vector<std::string>;

}  // namespace mt::train
