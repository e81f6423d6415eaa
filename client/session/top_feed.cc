// A failed look leaves what the one before has found.
#include "client/session/top_feed.h"

#include <algorithm>
#include <utility>

#include "common/control/numbers.h"
#include "megatrain/v1/api.pb.h"

namespace mt::client {
namespace {

using std::chrono::steady_clock;

// An answer is far below gRPC's limit of a message; a screen never shows more jobs.
constexpr int kJobsOfPage = 100;
constexpr int kMostJobs = 1'000;

StatusOr<v1::ListJobsResponse> LiveJobs(const Api& api, const std::string& job_namespace) {
  v1::ListJobsRequest list;
  list.set_namespace_(job_namespace);
  list.set_live_only(true);
  list.set_page_size(kJobsOfPage);
  v1::ListJobsResponse jobs;
  do {
    ASSIGN_OR_RETURN(const v1::ListJobsResponse page, api.ListJobs(list));
    jobs.mutable_jobs()->MergeFrom(page.jobs());
    list.set_page_token(page.next_page_token());
  } while (!list.page_token().empty() && jobs.jobs_size() < kMostJobs);
  return jobs;
}

}  // namespace

StatusOr<TopNews> LookAtTop(const Api& api, const std::string& job_namespace,
                            const std::string& open_uid) {
  TopNews news;
  ASSIGN_OR_RETURN(v1::ListJobsResponse jobs, LiveJobs(api, job_namespace));
  v1::ReadRanksRequest read;
  if (!open_uid.empty()) {
    const auto live =
        std::ranges::find(jobs.jobs(), open_uid, [](const v1::Job& job) { return job.uid(); });
    if (live != jobs.jobs().end()) {
      news.open = std::make_shared<const v1::Job>(*live);
    } else {
      v1::GetJobRequest get;
      get.mutable_job()->set_uid(open_uid);
      auto job = api.GetJob(get);
      if (!job.ok() && !absl::IsNotFound(job.status())) return job.status();
      if (job.ok()) news.open = std::make_shared<const v1::Job>(std::move(job).value());
    }
    read.mutable_job()->set_uid(open_uid);
  }
  if (open_uid.empty() || news.open != nullptr) {
    auto readings = ReadingsApi(api).ReadRanks(read);
    // A coordinator of an older version, or one with too many ranks for an answer, has jobs to
    // show; one that is silent has nothing.
    if (absl::IsUnavailable(readings.status()) || absl::IsDeadlineExceeded(readings.status()))
      return readings.status();
    if (readings.ok()) {
      news.readings = std::make_shared<const v1::ReadRanksResponse>(std::move(readings).value());
    } else {
      news.trouble = base::Message(readings.status());
    }
  }
  news.jobs = std::make_shared<const v1::ListJobsResponse>(std::move(jobs));
  news.answered = steady_clock::now();
  return news;
}

TopFeed::TopFeed(Args args) : args_(std::move(args)), open_uid_(args_.open_uid) {
  news_.answered = steady_clock::now();
  thread_ = std::thread([this] { Run(); });
}

TopFeed::~TopFeed() {
  {
    base::MutexLock lock(&mu_);
    stopping_ = true;
    wake_.NotifyAll();
  }
  thread_.join();
}

TopNews TopFeed::Take() const {
  base::MutexLock lock(&mu_);
  return news_;
}

void TopFeed::Open(const std::string& uid) {
  base::MutexLock lock(&mu_);
  open_uid_ = uid;
  at_once_ = true;
  wake_.NotifyAll();
}

void TopFeed::Run() {
  for (;;) {
    std::string uid;
    {
      base::MutexLock lock(&mu_);
      if (stopping_) return;
      at_once_ = false;
      uid = open_uid_;
    }
    auto news = LookAtTop(*args_.api, args_.job_namespace, uid);
    {
      base::MutexLock lock(&mu_);
      if (news.ok()) {
        news_ = std::move(news).value();
      } else {
        news_.trouble = base::Message(news.status());
      }
    }
    args_.changed();
    const auto until = steady_clock::now() + control::kRankBeatInterval;
    base::MutexLock lock(&mu_);
    while (!stopping_ && !at_once_ && wake_.WaitUntil(&mu_, until)) {
    }
  }
}

}  // namespace mt::client
