// Whether a coordinator is the one to obey: one of this node's cluster, of no lower term than was
// obeyed before, and of an equal one only if it is the same start of the same coordinator
// (docs/design/control-plane.md#terms). What is obeyed is on disk first. Loop thread only; blocks
// for that write, once a term.
#pragma once

#include <functional>
#include <string>

#include "worker/node/agent/cluster_file.h"

namespace megatrain::v1 {
class Register;
class Registered;
}  // namespace megatrain::v1

namespace mt::node {

class Obedience {
 public:
  // `known` is what `store` has; a null store keeps it in memory, for tests.
  Obedience(ClusterState known, ClusterStore* store) : known_(std::move(known)), store_(store) {}

  void FillRegister(megatrain::v1::Register* message) const;
  // OK: it is obeyed from now on. Else nothing of this session may be acted on; logged where it is
  // not what was said last.
  Status Check(const megatrain::v1::Registered& registered);
  // A session was ended with this: perhaps the coordinator has refused this worker for the same
  // reasons.
  void OnClosed(const Status& why);

  const ClusterState& known() const { return known_; }
  // Why the coordinator that answers is not obeyed, with the stable reason first; empty: no such
  // refusal stands.
  const std::string& refusal() const { return refusal_; }

 private:
  Status Judge(const megatrain::v1::Registered& registered) const;
  void Refuse(const Status& why);

  ClusterState known_;
  ClusterStore* store_;
  std::string refusal_;
};

}  // namespace mt::node
