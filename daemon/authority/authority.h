// Whether this coordinator may give orders. It may not once it knows of another with a higher term
// (superseded, until a restore is declared), nor while its store cannot be written. Reads are
// answered all the same (docs/design/control-plane.md#terms). Not thread-safe (the core's thread).
#pragma once

#include <string>

#include "common/base/status.h"

namespace mt::daemon {

class Authority {
 public:
  bool GivesOrders() const { return superseded_.empty() && store_.empty(); }
  bool IsSuperseded() const { return !superseded_.empty(); }
  // Why no orders are given; empty: they are.
  const std::string& Why() const { return superseded_.empty() ? store_ : superseded_; }

  // The first reason stays.
  void Supersede(std::string why) {
    if (superseded_.empty()) superseded_ = std::move(why);
  }
  // A restore was declared: this store is the one to obey.
  void Reinstate() { superseded_.clear(); }
  // Why the store cannot be written; empty: it can.
  void StoreRefuses(std::string why) { store_ = std::move(why); }
  const std::string& StoreRefusal() const { return store_; }

  // OK, or what whoever asks for a change is answered: FailedPrecondition (COORDINATOR_SUPERSEDED),
  // Unavailable (STORE_READ_ONLY).
  Status CheckOrders() const;
  // The second of them: what makes this coordinator the newest again needs the store, too.
  Status CheckStore() const;

 private:
  std::string superseded_;
  std::string store_;
};

}  // namespace mt::daemon
