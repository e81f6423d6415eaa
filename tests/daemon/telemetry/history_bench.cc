// Prints the cost of a history of a million steps: time and memory of appending, time of a view and
// of a walk through every step. Not a test: run it by hand, `mt_history_bench [STEPS [FOLDER
// UID]]`. With FOLDER it only writes the history of the job UID there, for a coordinator to serve.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>

#include <fmt/format.h>

#include "common/base/ids.h"
#include "tests/daemon/telemetry/history_fixture.h"

namespace mt::daemon {
namespace {

double ResidentMiB() {
  std::ifstream statm("/proc/self/statm");
  int64_t total = 0;
  int64_t resident = 0;
  statm >> total >> resident;
  return static_cast<double>(resident * sysconf(_SC_PAGESIZE)) / (1 << 20);
}

template <class F>
double Milliseconds(const F& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

void Run(int64_t num_steps) {
  const std::string folder =
      (std::filesystem::temp_directory_path() / ("mt-history-bench-" + base::RandomHex(6)))
          .string();
  History history(folder);
  history.Recover({"job"});
  double small = 0;
  const double append = Milliseconds([&] {
    for (int64_t step = 1; step <= num_steps; ++step) {
      history.Append("job", MakeStep(step));
      if (step % 100 == 0 && !history.Flush().ok()) std::abort();
      if (step == 10'000) small = ResidentMiB();
    }
  });
  fmt::print("append    {} steps in {:.0f} ms, a flush every 100\n", num_steps, append);
  fmt::print("disk      {:.1f} MiB\n",
             static_cast<double>(std::filesystem::file_size(folder + "/job.steps")) / (1 << 20));
  fmt::print("memory    {:.1f} MiB resident, {:.1f} MiB more than at 10,000 steps\n", ResidentMiB(),
             ResidentMiB() - small);
  std::vector<double> times;
  HistoryView view;
  for (int i = 0; i < 21; ++i) {
    times.push_back(Milliseconds([&] { view = history.Query("job", {.points = 1'000}); }));
  }
  std::ranges::sort(times);
  fmt::print(
      "view      {} points of level {}, {:.2f} MiB read: median {:.2f} ms, worst {:.2f} ms\n",
      view.rows.num_rows(), view.rows.level, static_cast<double>(view.bytes_read) / (1 << 20),
      times[10], times[20]);
  fmt::print("          memory after it {:.1f} MiB more than at 10,000 steps\n",
             ResidentMiB() - small);
  int64_t walked = 0;
  const double walk = Milliseconds([&] {
    HistoryWalk page{.limit = kHistoryMaxPoints};
    do {
      view = history.Walk("job", page);
      walked += std::ssize(view.rows.steps);
      page.after_step = view.next_step;
    } while (page.after_step > 0);
  });
  fmt::print("walk      {} steps in {:.0f} ms\n", walked, walk);
  fmt::print("          memory after it {:.1f} MiB more than at 10,000 steps\n",
             ResidentMiB() - small);
  const double start = Milliseconds([&] {
    History again(folder);
    again.Recover({"job"});
    again.Append("job", MakeStep(num_steps + 1));
  });
  fmt::print("restart   {:.1f} ms until the next step is taken\n", start);
  std::filesystem::remove_all(folder);
}

void Write(int64_t num_steps, const std::string& folder, const std::string& uid) {
  History history(folder);
  history.Recover({uid});
  for (int64_t step = 1; step <= num_steps; ++step) {
    history.Append(uid, MakeStep(step));
    if (step % 10'000 == 0 && !history.Flush().ok()) std::abort();
  }
  history.Close(uid);
  if (!history.Flush().ok()) std::abort();
}

}  // namespace
}  // namespace mt::daemon

int main(int argc, char** argv) {
  if (argc == 4) {
    mt::daemon::Write(std::atoll(argv[1]), argv[2], argv[3]);
    return 0;
  }
  mt::daemon::Run(argc > 1 ? std::atoll(argv[1]) : 1'000'000);
  return 0;
}
