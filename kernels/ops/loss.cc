// Default body of the fused entry over the primitives, for backends that do not fuse it.
#include "kernels/ops/loss.h"

namespace mt::kernels {

void LossOps::StatsFinish(Stream& stream, const LossFinishArgs& args) const {
  CHECK_EQ(args.stats.shape[0], 1);
  Stats(stream, {.logits = args.logits,
                 .labels = args.labels,
                 .first_column = args.first_column,
                 .real_columns = args.real_columns,
                 .stats = args.stats.Reshaped({args.stats.shape[1], 3})});
  Finish(stream, args);
}

}  // namespace mt::kernels
