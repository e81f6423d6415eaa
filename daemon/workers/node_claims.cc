// Secrets are HMAC-SHA256 over generation and name, under the cluster's key. A generation is in
// force once its node has written it down; until then it is given again, so that an answer that is
// lost locks nobody out.
#include "daemon/workers/node_claims.h"

#include <algorithm>

#include "common/base/log.h"
#include "common/crypto/hmac.h"
#include "common/rpc/reason.h"
#include "daemon/membership/lease_table.h"
#include "megatrain/v1/store.pb.h"
#include "megatrain/v1/worker.pb.h"

namespace mt::daemon {
namespace {

constexpr int kClusterKeyBytes = 32;
constexpr size_t kMaxAddressesTold = 64;  // of one node: claimants choose what they say
constexpr size_t kMaxShownBytes = 64;     // of what a refused claimant says of itself

std::string Shown(const std::string& text) { return text.substr(0, kMaxShownBytes); }

bool SameKnown(const std::string& a, const std::string& b) { return !a.empty() && a == b; }

}  // namespace

std::string NodeClaims::SecretOf(const std::string& node, int64_t generation) {
  return crypto::HmacSha256(parts_.ledger->Cluster().cluster_key(),
                            fmt::format("megatrain node secret {} {}", generation, node));
}

// A generation above the known one is of a later store than this one, which was restored.
bool NodeClaims::IsProven(const v1::Register& hello, const v1::StoredWorker* known) {
  const int64_t at_least = std::max<int64_t>(1, known == nullptr ? 0 : known->generation());
  return hello.generation() >= at_least &&
         crypto::SameSecret(hello.node_secret(), SecretOf(hello.node(), hello.generation()));
}

Status NodeClaims::CheckSecret(const v1::Register& hello, const v1::StoredWorker& known) {
  if (known.generation() == 0 || known.readmit() || IsProven(hello, &known)) return OkStatus();
  return rpc::WithReason(
      base::Error(absl::StatusCode::kPermissionDenied,
                  "{} secret of node {}: another host has this name, or this one has lost its "
                  "--state. Give this worker another --node; or, if this host was installed anew "
                  "and the node holds no ranks: mtctl node readmit {}",
                  hello.node_secret().empty() ? "it does not have the" : "it has a wrong",
                  hello.node(), hello.node()),
      rpc::reason::kNodeSecretWrong);
}

Status NodeClaims::CheckHolder(SessionId id, const v1::Register& hello,
                               const v1::StoredWorker& known) {
  const WorkerSession* holder = parts_.hub->FindByNode(hello.node());
  if (holder == parts_.hub->Find(id)) holder = nullptr;
  const bool same_boot = SameKnown(known.node().boot_id(), hello.boot_id());
  // The same process connects again, whose uid anybody can read; or an agent starts anew where its
  // predecessor was.
  const bool same_process = known.node().uid() == hello.worker_uid() &&
                            (known.generation() == 0 || IsProven(hello, &known));
  if (same_process || (same_boot && holder == nullptr)) return OkStatus();
  if (parts_.leases->StateOf(hello.node()) != v1::NODE_READY) return OkStatus();
  return rpc::WithReason(
      base::Error(
          absl::StatusCode::kAlreadyExists,
          "node name '{}' belongs to a worker that was heard within {} s (from {}); give this one "
          "another --node, or stop the other one",
          hello.node(),
          std::chrono::duration_cast<std::chrono::seconds>(parts_.leases->limits().suspect_after)
              .count(),
          known.node().address()),
      rpc::reason::kNodeNameInUse);
}

Status NodeClaims::Check(SessionId id, const v1::Register& hello) {
  v1::StoredWorker* known = parts_.ledger->FindWorker(hello.node());
  if (known == nullptr) return OkStatus();
  if (Status status = CheckSecret(hello, *known); !status.ok()) {
    ShowRefused(hello, status, known);
    return status;
  }
  Status status = CheckHolder(id, hello, *known);
  // Where the holder has just gone, as a pod that is replaced, waiting is all there is to do.
  if (!status.ok() && parts_.hub->IsConnected(hello.node())) ShowRefused(hello, status, known);
  return status;
}

void NodeClaims::ShowRefused(const v1::Register& hello, const Status& why,
                             v1::StoredWorker* known) {
  const std::string text =
      fmt::format("{} (boot {}): {}", hello.address().empty() ? "?" : Shown(hello.address()),
                  Shown(hello.boot_id()), base::Message(why));
  if (known->node().refused_claim() != text) {
    known->mutable_node()->set_refused_claim(text);
    parts_.ledger->MarkWorker(*known, /*urgent=*/true);
  }
  std::set<std::string>& told = told_[hello.node()];
  if (told.size() >= kMaxAddressesTold || !told.insert(Shown(hello.address())).second) return;
  parts_.ledger->AddEvent({.type = "NodeClaimRefused", .message = text, .node = hello.node()});
}

HeldSettlement::Former NodeClaims::FormerOf(const v1::Register& hello) {
  const v1::StoredWorker* known = parts_.ledger->FindWorker(hello.node());
  if (known == nullptr) return {.same_worker = false, .same_boot = false, .accounted = true};
  HeldSettlement::Former former{.same_worker = known->node().uid() == hello.worker_uid(),
                                .same_boot = SameKnown(known->node().boot_id(), hello.boot_id()),
                                .accounted = false};
  // Nothing of another boot of the same machine runs any more.
  former.accounted =
      former.same_worker || former.same_boot || SameKnown(known->machine_id(), hello.machine_id());
  return former;
}

void NodeClaims::Take(const v1::Register& hello, v1::StoredWorker* worker) {
  const v1::StoredWorker* known = parts_.ledger->FindWorker(hello.node());
  worker->set_machine_id(hello.machine_id());
  if (known != nullptr) {
    worker->set_generation(known->generation());
    worker->set_readmit(known->readmit());
    worker->set_dropped_steps(known->dropped_steps());
  }
  if (!IsProven(hello, known)) return;
  worker->set_generation(hello.generation());
  worker->set_readmit(false);
}

void NodeClaims::GiveSecret(const v1::Register& hello, WorkerSession* session,
                            v1::Registered* registered) {
  const v1::StoredWorker* worker = parts_.ledger->FindWorker(hello.node());
  if (IsProven(hello, worker)) return;
  session->given_generation = worker->generation() + 1;
  registered->set_node_secret(SecretOf(hello.node(), session->given_generation));
  registered->set_generation(session->given_generation);
}

void NodeClaims::OnSecretKept(const WorkerSession& session, int64_t generation) {
  if (generation <= 0 || generation != session.given_generation) {
    log::Warn("a worker speaks of a secret that it was not given", {{"node", session.node}});
    return;
  }
  v1::StoredWorker* worker = parts_.ledger->FindWorker(session.node);
  worker->set_generation(generation);
  worker->set_readmit(false);
  parts_.ledger->MarkWorker(*worker, /*urgent=*/true);
}

Status NodeClaims::Readmit(const std::string& node, const Order& order) {
  v1::StoredWorker* worker = parts_.ledger->FindWorker(node);
  if (worker == nullptr) {
    return rpc::WithReason(base::NotFound("no node '{}' (mtctl get nodes lists them)", node),
                           rpc::reason::kUnknownNode);
  }
  if (const auto held = parts_.ledger->AllocationsOnNode(node); !held.empty()) {
    return rpc::WithReason(
        base::FailedPrecondition(
            "node {} holds ranks of job {}: end them first (mtctl kill), or, if nothing runs there "
            "any more: mtctl node declare-dead {}",
            node, held.front()->job_uid(), node),
        rpc::reason::kNodeHoldsRanks);
  }
  worker->set_readmit(true);
  worker->mutable_node()->clear_refused_claim();
  told_.erase(node);
  parts_.ledger->MarkWorker(*worker, /*urgent=*/true);
  parts_.ledger->AddEvent({.type = "NodeReadmitted",
                           .message = "its name may be taken without its secret, once",
                           .node = node,
                           .actor = order.actor,
                           .reason = order.reason});
  return OkStatus();
}

}  // namespace mt::daemon
