// Calls on the coordinator itself. Not thread-safe (the core's thread).
#pragma once

#include <functional>
#include <string_view>

#include "common/base/status.h"

namespace megatrain::v1 {
class DeclareRestoreRequest;
class ServerInfo;
}  // namespace megatrain::v1

namespace mt::daemon {

namespace v1 = megatrain::v1;
class Authority;
class Ledger;
class RestoreGate;
class Sessions;

class AdminApi {
 public:
  struct Parts {
    Ledger* ledger;
    const Authority* authority;
    RestoreGate* restore_gate;
    Sessions* sessions;
    std::function<Status()> begin_restore;  // raises the term (core/begin_term.h)
  };
  // All parts outlive it.
  explicit AdminApi(Parts parts) : parts_(std::move(parts)) {}

  // Cluster, term, and why no orders are given; the rest of the message stays as it is.
  void Describe(v1::ServerInfo* out) const;
  // This store is the one to obey from now on, whatever was heard of others: raises the term, and
  // has every worker register again. Unavailable (STORE_READ_ONLY) where that cannot be written.
  Status DeclareRestore(const v1::DeclareRestoreRequest& request, std::string_view actor);

 private:
  Parts parts_;
};

}  // namespace mt::daemon
