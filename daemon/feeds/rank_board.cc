// Ages are counted here, by the coordinator's clock: those of the nodes may differ.
#include "daemon/feeds/rank_board.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "daemon/jobs/job_states.h"
#include "megatrain/v1/api.pb.h"

namespace mt::daemon {

RankBoard::RankBoard(const base::Clock* clock) : clock_(clock) {}
RankBoard::~RankBoard() = default;

void RankBoard::Take(const v1::Job& job, const std::string& node,
                     const v1::RankReadings& readings) {
  JobRanks& kept = jobs_[job.uid()];
  if (kept.epoch != readings.epoch()) {
    kept.ranks.clear();
    kept.epoch = readings.epoch();
  }
  for (const v1::RankReading& reading : readings.ranks()) {
    const int rank = reading.rank();
    if (rank < 0 || rank >= job.ranks_size() || job.ranks(rank).node() != node) continue;
    auto taken = std::make_unique<v1::RankReading>(reading);
    taken->set_node(node);
    kept.ranks[rank] = {.reading = std::move(taken), .taken = clock_->Now()};
  }
}

void RankBoard::Fill(const std::string& uid, v1::ReadRanksResponse* out) const {
  const auto found = jobs_.find(uid);
  if (found == jobs_.end()) return;
  v1::RankReadings* job = out->add_jobs();
  job->set_job_uid(uid);
  job->set_epoch(found->second.epoch);
  for (const auto& [index, rank] : found->second.ranks) {
    v1::RankReading* reading = job->add_ranks();
    *reading = *rank.reading;
    const auto age =
        std::chrono::duration_cast<std::chrono::milliseconds>(clock_->Now() - rank.taken);
    reading->set_age_ms(std::max<int64_t>(0, age.count()));
  }
}

void RankBoard::FillAll(v1::ReadRanksResponse* out) const {
  for (const auto& [uid, job] : jobs_) Fill(uid, out);
}

void RankBoard::Publish(const v1::Job& job) {
  const auto found = jobs_.find(job.uid());
  if (found == jobs_.end()) return;
  if (!IsActive(job.state()) || found->second.epoch != job.epoch()) jobs_.erase(found);
}

void RankBoard::Forget(const std::string& uid) { jobs_.erase(uid); }

}  // namespace mt::daemon
