// An error of another rank is none of this one's doing.
#include "worker/train/setup/agreement.h"

#include "worker/failure/failure.h"

namespace mt::train {

Status Agree(checkpoint::Exchange* exchange, const Status& mine) {
  const Status all = exchange->Agree(mine);
  return mine.ok() ? failure::WithCause(all, failure::Cause::kNetwork) : mine;
}

}  // namespace mt::train
