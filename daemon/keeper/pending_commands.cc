// Ids of commands, the list of a job, and the messages that carry them.
#include "daemon/keeper/pending_commands.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "common/base/ids.h"
#include "daemon/hub/worker_hub.h"
#include "daemon/jobs/rank_states.h"
#include "daemon/keeper/checkpoints.h"
#include "megatrain/v1/store.pb.h"
#include "megatrain/v1/worker.pb.h"

namespace mt::daemon {
namespace {

// The first part of an id, by CommandIdKind; on the wire.
constexpr std::array<std::string_view, 3> kKinds = {"kill", "stop", "word"};

// "kill/<job uid>/<epoch>": the same order has the same id, so sending it twice does it once.
// Commands of which there may be many add "/<16 hex digits>".
std::string IdOf(CommandIdKind kind, const JobEpoch& job) {
  return fmt::format("{}/{}/{}", kKinds[static_cast<size_t>(kind)], job.job_uid, job.epoch);
}

std::string NewId(CommandIdKind kind, const JobEpoch& job) {
  return fmt::format("{}/{}", IdOf(kind, job), base::RandomHex(8));
}

bool RankZeroTakesCommands(const v1::Job& job) {
  return !job.ranks().empty() && RankIsReady(job.ranks(0).state());
}

v1::CoordinatorMessage MakeCommand(std::string id, const JobEpoch& job, v1::Command::Verb verb) {
  v1::CoordinatorMessage message;
  v1::Command* command = message.mutable_command();
  command->set_command_id(std::move(id));
  command->set_job_uid(job.job_uid);
  command->set_epoch(job.epoch);
  command->set_verb(verb);
  return message;
}

// Who reads a checkpoint of the job is no change of the job that its users would see.
Change ChangeBy(const v1::GivenWord& command) {
  return command.verb() == v1::Command::KEEP_STEPS ? Change::kOwn : Change::kState;
}

v1::Command::Verb VerbOf(const v1::StopOrder& stop) {
  if (!stop.with_save()) return v1::Command::STOP_WITHOUT_SAVE;
  return stop.keeps_ranks() ? v1::Command::RELEASE : v1::Command::STOP_WITH_SAVE;
}

}  // namespace

v1::Command_Verb VerbOf(const v1::GivenWord& command) {
  return static_cast<v1::Command::Verb>(command.verb());
}

bool PendingCommands::Parse(std::string_view text, CommandId* id) {
  const size_t first = text.find('/');
  const size_t second = first == std::string_view::npos ? first : text.find('/', first + 1);
  if (second == std::string_view::npos) return false;
  const std::string_view kind = text.substr(0, first);
  bool known = false;
  for (size_t i = 0; i < kKinds.size(); ++i) {
    if (kKinds[i] != kind) continue;
    id->kind = static_cast<CommandIdKind>(i);
    known = true;
  }
  id->job.job_uid = text.substr(first + 1, second - first - 1);
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data() + second + 1, end, id->job.epoch);
  if (!known || parsed.ec != std::errc()) return false;
  const bool more = parsed.ptr != end && *parsed.ptr == '/';
  if (id->kind == CommandIdKind::kQueued) return more;
  return parsed.ptr == end || (more && id->kind == CommandIdKind::kStop);
}

std::string PendingCommands::NewStopId(const v1::Job& job) {
  return NewId(CommandIdKind::kStop, {job.uid(), job.epoch()});
}

void PendingCommands::Give(v1::StoredJob& stored, const Given& given, const Order& order) {
  const v1::Job& job = stored.job();
  v1::GivenWord* command = stored.add_words();
  command->set_command_id(NewId(CommandIdKind::kQueued, {job.uid(), job.epoch()}));
  command->set_verb(given.verb);
  command->set_operation(given.operation);
  command->set_profile_steps(given.profile_steps);
  if (given.generate != nullptr) *command->mutable_generate() = *given.generate;
  command->set_reason(order.reason);
  command->set_actor(order.actor);
  if (given.label != nullptr && !IsEmpty(*given.label)) *command->mutable_label() = *given.label;
  ledger_->MarkJob(stored, ChangeBy(*command));
  if (RankZeroTakesCommands(job)) SendOne(stored, *command);
}

void PendingCommands::SendOne(const v1::StoredJob& stored, const v1::GivenWord& command) {
  const v1::Job& job = stored.job();
  v1::CoordinatorMessage message =
      MakeCommand(command.command_id(), {job.uid(), job.epoch()}, VerbOf(command));
  message.mutable_command()->set_reason(command.reason());
  message.mutable_command()->set_actor(command.actor());
  if (command.has_label()) *message.mutable_command()->mutable_label() = command.label();
  message.mutable_command()->set_profile_steps(command.profile_steps());
  if (command.has_generate()) *message.mutable_command()->mutable_generate() = command.generate();
  if (VerbOf(command) == v1::Command::UPDATE)
    *message.mutable_command()->mutable_spec() = job.spec();
  if (VerbOf(command) == v1::Command::KEEP_STEPS)
    *message.mutable_command()->mutable_kept_steps() = stored.kept_steps();
  hub_->Send(job.ranks(0).node(), std::move(message));
}

void PendingCommands::Send(const v1::StoredJob& stored) {
  if (RankZeroTakesCommands(stored.job())) {
    for (const v1::GivenWord& command : stored.words()) SendOne(stored, command);
  }
  if (stored.has_stop()) SendStop(stored);
}

void PendingCommands::Drop(v1::StoredJob& stored, v1::Command_Verb verb) {
  auto* commands = stored.mutable_words();
  for (int i = commands->size() - 1; i >= 0; --i) {
    if (commands->at(i).verb() == verb) commands->DeleteSubrange(i, 1);
  }
}

void PendingCommands::DropUnheard(v1::StoredJob& stored, v1::Command_Verb verb) {
  const v1::Job& job = stored.job();
  // One whose node is silent may have heard it before.
  if (RankZeroTakesCommands(job) || (!job.ranks().empty() && job.ranks(0).state() == v1::UNKNOWN))
    return;
  Drop(stored, verb);
}

void PendingCommands::CloseEpoch(v1::StoredJob& stored) {
  auto* commands = stored.mutable_words();
  const auto is_over = [this](const v1::GivenWord& command) {
    if (command.verb() != v1::Command::CHECKPOINT_NOW) return true;
    const v1::Operation* operation = ledger_->FindOperation(command.operation());
    return operation == nullptr || operation->done();
  };
  commands->erase(std::remove_if(commands->begin(), commands->end(), is_over), commands->end());
  for (v1::GivenWord& command : *commands) {
    command.set_command_id(
        NewId(CommandIdKind::kQueued, {stored.job().uid(), stored.job().epoch()}));
  }
}

bool PendingCommands::Take(v1::StoredJob& stored, const std::string& command_id,
                           v1::GivenWord* command) {
  auto* commands = stored.mutable_words();
  for (int i = 0; i < commands->size(); ++i) {
    if (commands->at(i).command_id() != command_id) continue;
    *command = commands->at(i);
    commands->DeleteSubrange(i, 1);
    ledger_->MarkJob(stored, ChangeBy(*command));
    return true;
  }
  return false;
}

bool PendingCommands::Has(const v1::StoredJob& job, v1::Command_Verb verb) {
  for (const v1::GivenWord& command : job.words()) {
    if (command.verb() == verb) return true;
  }
  return false;
}

bool PendingCommands::WaitsFor(const v1::StoredJob& job, const std::string& operation) {
  for (const v1::GivenWord& command : job.words()) {
    if (command.operation() == operation) return true;
  }
  return false;
}

void PendingCommands::SendStop(const v1::StoredJob& stored) {
  const v1::Job& job = stored.job();
  if (job.ranks().empty()) return;
  v1::CoordinatorMessage message =
      MakeCommand(stored.stop().command_id(), {job.uid(), job.epoch()}, VerbOf(stored.stop()));
  message.mutable_command()->set_reason(stored.stop().reason());
  message.mutable_command()->set_actor(stored.stop().actor());
  hub_->Send(job.ranks(0).node(), std::move(message));
}

void PendingCommands::SendKill(const JobEpoch& job, const std::string& node,
                               std::string_view reason) {
  v1::CoordinatorMessage message =
      MakeCommand(IdOf(CommandIdKind::kKill, job), job, v1::Command::KILL);
  message.mutable_command()->set_reason(std::string(reason));
  message.mutable_command()->set_actor("coordinator");
  hub_->Send(node, std::move(message));
}

}  // namespace mt::daemon
