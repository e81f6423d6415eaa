// The calls that operators make on the coordinator itself, beside those of Api, whose connection
// and rules (deadline, repeats) they share.
#pragma once

#include "client/session/api.h"

namespace megatrain::v1 {
class DeleteNodeRequest;
class DeclareRestoreRequest;
}  // namespace megatrain::v1

namespace mt::client {

class OperatorApi {
 public:
  // `api` outlives it.
  explicit OperatorApi(const Api* api) : api_(api) {}

  Status DeleteNode(const v1::DeleteNodeRequest& request) const;
  StatusOr<v1::ServerInfo> DeclareRestore(const v1::DeclareRestoreRequest& request) const;

 private:
  const Api* api_;
};

}  // namespace mt::client
