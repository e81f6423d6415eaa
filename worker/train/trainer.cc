// The boundary of a run: no exception leaves it, and whatever ends this rank's part ends its
// groups.
#include "worker/train/trainer.h"

#include <utility>

#include "common/layout/group_axes.h"
#include "common/spec/derived.h"
#include "megatrain/v1/job.pb.h"
#include "worker/failure/failure.h"
#include "worker/train/run_setup.h"
#include "worker/train/step_loop.h"

namespace mt::train {
namespace {

Status CheckArgs(const TrainArgs& args) {
  CHECK(args.job != nullptr && args.groups != nullptr && args.backend != nullptr &&
        args.observer != nullptr && args.clock != nullptr);
  const int64_t ranks = args.groups->axes().SizeOf(layout::kWorldAxes);
  const int64_t needed = spec::WorldSize(*args.job);
  if (ranks == needed) return OkStatus();
  return base::FailedPrecondition("the job is laid out for {} ranks, {} were started", needed,
                                  ranks);
}

// Runs `body` and turns what it throws into a status.
template <class Body>
Status Caught(const Body& body) {
  try {
    return body();
  } catch (...) {
    return failure::StatusOfException();
  }
}

// Runs `body`; what it throws becomes a status, to which `described` adds. An error that all ranks
// share (a verdict over a summed vector, a vote) leaves the groups as they are. A failure that this
// rank alone knows of, a broken group or an exception, ends its part in every group: peers that
// wait for it in another one get kUnavailable and do the same.
template <class Body, class Described>
Status Guarded(parallel::RankGroups& groups, TrainObserver& observer, const Body& body,
               const Described& described) {
  bool returned = false;
  Status status = Caught([&] {
    Status mine = body();
    returned = true;
    return mine;
  });
  if (!returned) status = described(status);
  const Status broken = groups.status();
  if (!status.ok()) observer.OnFailed(status, !returned || !broken.ok());
  if (!broken.ok()) groups.Abort(base::Message(broken));
  if (!returned) groups.Abort(base::Message(status));
  return status;
}

}  // namespace

StatusOr<std::unique_ptr<Trainer>> Trainer::Create(const TrainArgs& args) {
  RETURN_IF_ERROR(CheckArgs(args));
  RunSetup setup(args);
  RETURN_IF_ERROR(Guarded(
      *args.groups, *args.observer, [&] { return setup.Run(); },
      [](Status thrown) { return thrown; }));
  auto loop = std::make_unique<StepLoop>(args, std::move(setup).Take());
  return std::unique_ptr<Trainer>(new Trainer(args.observer, std::move(loop)));
}

Trainer::Trainer(TrainObserver* observer, std::unique_ptr<StepLoop> loop)
    : observer_(observer), loop_(std::move(loop)) {}
Trainer::~Trainer() = default;

TrainResult Trainer::Run() {
  TrainResult result;
  result.status = Guarded(
      loop_->groups(), *observer_,
      [&] {
        result = loop_->Run();
        return result.status;
      },
      [this](const Status& thrown) { return loop_->WithStep(thrown); });
  if (!result.status.ok()) result.message = base::Message(result.status);
  return result;
}

int Trainer::LastMicrobatch() const { return loop_->phases().LastMicrobatch(); }

std::string Trainer::LastMark() const { return loop_->phases().LastMark(); }
std::string_view Trainer::LastPhase() const { return report::Name(loop_->phases().LastPhase()); }

}  // namespace mt::train
