// Calls on orphaned ranks: list, adopt, kill. Not thread-safe (the core's thread).
#pragma once

#include <string_view>

#include "common/base/status.h"

namespace megatrain::v1 {
class AdoptRequest;
class Job;
class KillOrphanRequest;
class KillOrphanResponse;
class ListOrphansResponse;
}  // namespace megatrain::v1

namespace mt::daemon {

namespace v1 = megatrain::v1;
class Authority;
class Orphans;

class OrphansApi {
 public:
  // Both outlive it.
  OrphansApi(Orphans* orphans, const Authority* authority)
      : orphans_(orphans), authority_(authority) {}

  void List(v1::ListOrphansResponse* response);
  // Errors are those of Orphans::Adopt and Orphans::Kill, INVALID_REQUEST, and those of
  // Authority::CheckOrders.
  Status Adopt(const v1::AdoptRequest& request, std::string_view actor, v1::Job* response);
  Status Kill(const v1::KillOrphanRequest& request, std::string_view actor,
              v1::KillOrphanResponse* response);

 private:
  Orphans* orphans_;
  const Authority* authority_;
};

}  // namespace mt::daemon
