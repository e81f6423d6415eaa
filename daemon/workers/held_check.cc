// A comparison is due only when neither side has news under way.
#include "daemon/workers/held_check.h"

#include "common/base/log.h"
#include "megatrain/v1/store.pb.h"
#include "megatrain/v1/worker.pb.h"

namespace mt::daemon {

void AskForHeld(WorkerHub* hub, const std::string& node, bool with_assign) {
  v1::CoordinatorMessage message;
  message.mutable_held_request()->set_with_assign(with_assign);
  hub->Send(node, std::move(message));
}

void HeldCheck::OnBeat(WorkerSession& from, const v1::Heartbeat& beat) {
  from.orders.Beat();
  // Agents of before there were digests say neither.
  from.says_what_it_holds |= beat.held_digest() != 0 || beat.newest_seq() != 0;
  if (!from.says_what_it_holds) return;
  const v1::StoredWorker* worker = ledger_->FindWorker(from.node);
  const bool news =
      worker->acked_seq() < beat.newest_seq() || !from.orders.empty() || !from.unanswered.empty();
  if (news || from.orders.AskedForHeld()) return;
  if (beat.held_digest() == ledger_->HeldDigest(from.node)) return;
  ++num_mismatches_;
  log::Warn("a node holds other ranks than the ledger says: asking for all of them",
            {{"node", from.node},
             {"newest_seq", beat.newest_seq()},
             {"newest_command", beat.newest_command()}});
  AskForHeld(hub_, from.node, /*with_assign=*/false);
}

}  // namespace mt::daemon
