#include "daemon/keeper/words.h"

#include <array>
#include <charconv>
#include <utility>

#include "common/base/ids.h"
#include "daemon/hub/worker_hub.h"
#include "daemon/jobs/rank_states.h"
#include "megatrain/v1/store.pb.h"
#include "megatrain/v1/worker.pb.h"

namespace mt::daemon {
namespace {

// By CommandKind.
constexpr std::array<std::string_view, 3> kKinds = {"kill", "stop", "word"};

// "stop/<job uid>/<epoch>": the same order has the same id, so sending it twice does it once. A
// word, of which there may be many, adds "/<16 hex digits>".
std::string IdOf(CommandKind kind, const JobEpoch& job) {
  return fmt::format("{}/{}/{}", kKinds[static_cast<size_t>(kind)], job.job_uid, job.epoch);
}

bool RankZeroTakesWords(const v1::Job& job) {
  return !job.ranks().empty() && RankIsReady(job.ranks(0).state());
}

v1::CoordinatorMessage MakeCommand(std::string id, const JobEpoch& job, int verb) {
  v1::CoordinatorMessage message;
  v1::Command* command = message.mutable_command();
  command->set_command_id(std::move(id));
  command->set_job_uid(job.job_uid);
  command->set_epoch(job.epoch);
  command->set_verb(static_cast<v1::Command::Verb>(verb));
  return message;
}

}  // namespace

bool Words::Parse(std::string_view text, CommandId* id) {
  const size_t first = text.find('/');
  const size_t second = first == std::string_view::npos ? first : text.find('/', first + 1);
  if (second == std::string_view::npos) return false;
  const std::string_view kind = text.substr(0, first);
  bool known = false;
  for (size_t i = 0; i < kKinds.size(); ++i) {
    if (kKinds[i] != kind) continue;
    id->kind = static_cast<CommandKind>(i);
    known = true;
  }
  id->job.job_uid = text.substr(first + 1, second - first - 1);
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data() + second + 1, end, id->job.epoch);
  if (!known || parsed.ec != std::errc()) return false;
  return id->kind == CommandKind::kWord ? parsed.ptr != end && *parsed.ptr == '/'
                                        : parsed.ptr == end;
}

std::string Words::StopId(const v1::Job& job) {
  return IdOf(CommandKind::kStop, {job.uid(), job.epoch()});
}

void Words::Give(v1::StoredJob& stored, int verb, const std::string& operation,
                 const Order& order) {
  const v1::Job& job = stored.job();
  v1::GivenWord* word = stored.add_words();
  word->set_command_id(
      fmt::format("{}/{}", IdOf(CommandKind::kWord, {job.uid(), job.epoch()}), base::RandomHex(8)));
  word->set_verb(verb);
  word->set_operation(operation);
  word->set_reason(order.reason);
  word->set_actor(order.actor);
  ledger_->MarkJob(stored, Change::kState);
  if (RankZeroTakesWords(job)) SendOne(stored, *word);
}

void Words::SendOne(const v1::StoredJob& stored, const v1::GivenWord& word) {
  const v1::Job& job = stored.job();
  v1::CoordinatorMessage message =
      MakeCommand(word.command_id(), {job.uid(), job.epoch()}, word.verb());
  message.mutable_command()->set_reason(word.reason());
  message.mutable_command()->set_actor(word.actor());
  if (word.verb() == v1::Command::UPDATE) *message.mutable_command()->mutable_spec() = job.spec();
  hub_->Send(job.ranks(0).node(), std::move(message));
}

void Words::Send(const v1::StoredJob& stored) {
  if (RankZeroTakesWords(stored.job())) {
    for (const v1::GivenWord& word : stored.words()) SendOne(stored, word);
  }
  if (stored.has_stop()) SendStop(stored);
}

void Words::Drop(v1::StoredJob& stored, int verb) {
  auto* words = stored.mutable_words();
  for (int i = words->size() - 1; i >= 0; --i) {
    if (words->at(i).verb() == verb) words->DeleteSubrange(i, 1);
  }
}

void Words::DropUnheard(v1::StoredJob& stored, int verb) {
  const v1::Job& job = stored.job();
  // One whose node is silent may have heard it before.
  if (RankZeroTakesWords(job) || (!job.ranks().empty() && job.ranks(0).state() == v1::UNKNOWN))
    return;
  Drop(stored, verb);
}

bool Words::Take(v1::StoredJob& stored, const std::string& command_id, v1::GivenWord* word) {
  auto* words = stored.mutable_words();
  for (int i = 0; i < words->size(); ++i) {
    if (words->at(i).command_id() != command_id) continue;
    *word = words->at(i);
    words->DeleteSubrange(i, 1);
    ledger_->MarkJob(stored, Change::kState);
    return true;
  }
  return false;
}

bool Words::Has(const v1::StoredJob& job, int verb) {
  for (const v1::GivenWord& word : job.words()) {
    if (word.verb() == verb) return true;
  }
  return false;
}

bool Words::WaitsFor(const v1::StoredJob& job, const std::string& operation) {
  for (const v1::GivenWord& word : job.words()) {
    if (word.operation() == operation) return true;
  }
  return false;
}

void Words::SendStop(const v1::StoredJob& stored) {
  const v1::Job& job = stored.job();
  if (job.ranks().empty()) return;
  v1::CoordinatorMessage message = MakeCommand(
      StopId(job), {job.uid(), job.epoch()},
      stored.stop().with_save() ? v1::Command::STOP_WITH_SAVE : v1::Command::STOP_WITHOUT_SAVE);
  message.mutable_command()->set_reason(stored.stop().reason());
  message.mutable_command()->set_actor(stored.stop().actor());
  hub_->Send(job.ranks(0).node(), std::move(message));
}

void Words::SendKill(const JobEpoch& job, const std::string& node, std::string_view reason) {
  v1::CoordinatorMessage message =
      MakeCommand(IdOf(CommandKind::kKill, job), job, v1::Command::KILL);
  message.mutable_command()->set_reason(std::string(reason));
  message.mutable_command()->set_actor("coordinator");
  hub_->Send(node, std::move(message));
}

}  // namespace mt::daemon
