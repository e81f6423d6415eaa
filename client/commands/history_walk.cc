// Pages are pinned by the newest epoch: a page that names another one than the page before is
// thrown away where steps that were handed out have been replaced.
#include "client/commands/history_walk.h"

#include "megatrain/v1/api.pb.h"

namespace mt::client {
namespace {

constexpr int kPageSteps = 10'000;  // the most that one answer may have

// The first step of an epoch above `epoch`, between the bounds. Epochs ascend with the steps, so it
// is found by halves; of one rollback `most` is right at once.
struct Bounds {
  int64_t low;
  int64_t most;
};
StatusOr<int64_t> FirstStepAbove(const Api& api, const v1::QueryHistoryRequest& walk, int64_t epoch,
                                 Bounds bounds) {
  v1::QueryHistoryRequest request;
  *request.mutable_job() = walk.job();
  request.set_attempt(walk.attempt());
  request.set_limit(1);
  request.add_names("loss");
  auto [low, most] = bounds;
  for (int64_t probe = most - 1; low < most; probe = low + (most - low) / 2) {
    request.set_after_step(probe - 1);
    ASSIGN_OR_RETURN(const v1::History at, api.QueryHistory(request));
    if (at.epochs_size() == 0 || at.epochs(0) > epoch) {
      most = probe;
    } else {
      low = probe + 1;
    }
  }
  return most;
}

}  // namespace

ExitCode WalkHistory(const Api& api, const HistoryArgs& args, const GlobalOptions& options,
                     const WalkTold& told) {
  v1::QueryHistoryRequest request = HistoryRequest(args, options);
  request.set_limit(kPageSteps);
  int64_t epoch = 0;
  for (;;) {
    const auto page = api.QueryHistory(request);
    if (!page.ok()) return Complain(page.status());
    const int64_t known = std::exchange(epoch, page->epoch());
    if (known != 0 && known != epoch) {
      // Epochs ascend within the job; those of jobs before it in the run are their own.
      const auto first = FirstStepAbove(
          api, request, known, {.low = page->own_from_step() + 1, .most = page->epoch_base() + 1});
      if (!first.ok()) return Complain(first.status());
      if (*first <= request.after_step()) {
        told.replaced(std::max(*first, args.from_step), request.after_step());
        request.set_after_step(*first - 1);
        continue;
      }
    }
    const ExitCode code = told.page(*page);
    if (code != kExitOk || page->next_step() == 0) return code;
    request.set_after_step(page->next_step());
  }
}

}  // namespace mt::client
