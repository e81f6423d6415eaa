// The end of an activity is told once; where that is lost, the coordinator hears of it with the
// job's next change of state.
#include "worker/node/agent/activity_relay.h"

#include "megatrain/v1/rank.pb.h"
#include "megatrain/v1/worker.pb.h"

namespace mt::node {

void ActivityRelay::OnBeat(const JobEpoch& job, const megatrain::v1::RankBeat& beat) {
  if (beat.has_activity()) {
    busy_.insert(job);
  } else if (busy_.erase(job) == 0) {
    return;
  }
  megatrain::v1::WorkerMessage message;
  megatrain::v1::JobReport& report = *message.mutable_job_report();
  report.set_job_uid(job.first);
  report.set_epoch(job.second);
  *report.mutable_activity() = beat.activity();
  send_now_(message);
}

}  // namespace mt::node
