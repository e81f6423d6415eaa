// What `mtctl top` shows, asked for once a second by a thread of its own, so that a coordinator
// that does not answer holds up no key. Thread-safe.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "client/session/api.h"
#include "common/base/mutex.h"

namespace mt::client {

// One look: the live jobs of a namespace and, where one is open, that job and its ranks.
struct TopNews {
  std::shared_ptr<const v1::ListJobsResponse> jobs;       // null: no answer yet
  std::shared_ptr<const v1::Job> open;                    // null: none, or there is no such job
  std::shared_ptr<const v1::ReadRanksResponse> readings;  // of the open job, or of all
  std::string trouble;                                    // of the newest look; empty: none
  std::chrono::steady_clock::time_point answered;         // when the newest answer came
};

// Asks once; blocks up to the request timeout of each call. `open_uid` empty: readings of all jobs.
StatusOr<TopNews> LookAtTop(const Api& api, const std::string& job_namespace,
                            const std::string& open_uid);

class TopFeed {
 public:
  struct Args {
    const Api* api;  // outlives the feed
    std::string job_namespace;
    std::string open_uid;
    std::function<void()> changed;  // called on the feed's thread after each look
  };
  explicit TopFeed(Args args);
  // Waits for the look that is under way.
  ~TopFeed();
  TopFeed(const TopFeed&) = delete;
  TopFeed& operator=(const TopFeed&) = delete;

  TopNews Take() const;
  // Looks at this job from now on, at once.
  void Open(const std::string& uid);

 private:
  void Run();

  const Args args_;
  mutable base::Mutex mu_;
  base::CondVar wake_;
  bool stopping_ GUARDED_BY(mu_) = false;
  bool at_once_ GUARDED_BY(mu_) = false;
  std::string open_uid_ GUARDED_BY(mu_);
  TopNews news_ GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace mt::client
