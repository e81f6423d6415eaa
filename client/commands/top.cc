// `mtctl top`: the live jobs, and the ranks of one, brought up to date every second on the whole
// screen of a terminal; elsewhere one plain page.
#include "client/output/top.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <set>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "client/commands/commands.h"
#include "client/output/json.h"
#include "client/session/terminal.h"
#include "client/session/top_feed.h"
#include "megatrain/v1/api.pb.h"

namespace mt::client {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// An answer is late after this.
constexpr milliseconds kSilent{2'500};
// So long nothing is drawn anew where nothing happens; "no answer for N s" counts on.
constexpr milliseconds kDrawTick{500};
// What of a key's sequence comes later than this belongs to another.
constexpr milliseconds kKeyRest{30};
// Without an answer for so long a look is given up, and the next one begins.
constexpr double kLongestLookS = 2;

struct TopArgs {
  std::string job;
  bool once = false;
};

// Borrows from `news`.
TopModel ModelOf(const TopNews& news, const TopPlace& place, const std::string& endpoint) {
  TopModel model{.place = place, .endpoint = endpoint};
  if (news.jobs != nullptr)
    for (const v1::Job& job : news.jobs->jobs()) model.jobs.push_back(&job);
  // The newest look may still be of another job.
  if (news.open != nullptr && news.open->uid() == place.open_uid) model.open = news.open.get();
  for (const v1::Job* job : model.jobs)
    if (model.open == nullptr && job->uid() == place.open_uid) model.open = job;
  if (news.readings != nullptr && model.open != nullptr) {
    for (const v1::RankReadings& readings : news.readings->jobs())
      if (readings.job_uid() == place.open_uid) model.readings = &readings;
  }
  model.trouble = news.trouble;
  model.answered = news.jobs != nullptr;
  const auto silent = steady_clock::now() - news.answered;
  if (silent > kSilent) model.silent_s = std::chrono::duration<double>(silent).count();
  return model;
}

// Draws and obeys keys until one ends it.
ExitCode RunScreen(Terminal& screen, TopFeed& feed, TopPlace place, const std::string& endpoint,
                   const GlobalOptions& options) {
  TopNews news = feed.Take();
  std::string bytes;
  for (;;) {
    TopNews newest = feed.Take();
    if (place.paused) {
      news.answered = newest.answered;
      news.trouble = newest.trouble;
    } else {
      news = std::move(newest);
    }
    const TopModel model = ModelOf(news, place, endpoint);
    const Terminal::Size size = screen.GetSize();
    screen.Draw(TopPage(model, {.width = size.columns, .height = size.rows}, MakeStyle(options)));
    const bool rest = !bytes.empty();
    const Terminal::Event event = screen.Wait(rest ? kKeyRest : kDrawTick, &bytes);
    if (event.closed) return kExitIo;
    if (event.suspended) screen.Suspend();
    for (const TopKey key : TakeTopKeys(&bytes, /*last=*/rest)) {
      if (key == TopKey::kQuit) return kExitOk;
      if (key == TopKey::kInterrupt) return kExitInterrupted;
      if (key == TopKey::kSuspend) screen.Suspend();
      const TopPlace to = MoveTop(ModelOf(news, place, endpoint), key);
      if (to.open_uid != place.open_uid) feed.Open(to.open_uid);
      place = to;
    }
  }
}

ExitCode ShowTop(const Api& api, const TopPlace& place, const std::string& endpoint,
                 const GlobalOptions& options) {
  const auto terminal = Terminal::Open();
  if (!terminal.ok()) return Complain(terminal.status(), kExitIo);
  Terminal& screen = **terminal;
  TopFeed feed({.api = &api,
                .job_namespace = options.job_namespace,
                .open_uid = place.open_uid,
                .changed = [&screen] { screen.Wake(); }});
  const ExitCode code = RunScreen(screen, feed, place, endpoint, options);
  // Before the feed's last look is over.
  screen.Leave();
  return code;
}

ExitCode PrintOnce(const Api& api, const TopPlace& place, const std::string& endpoint,
                   const GlobalOptions& options) {
  const auto news = LookAtTop(api, options.job_namespace, place.open_uid);
  if (!news.ok()) return Complain(news.status());
  TopModel model = ModelOf(*news, place, endpoint);
  model.keys = false;
  if (!place.open_uid.empty()) model.jobs.clear();
  if (!place.open_uid.empty() && model.open != nullptr) model.jobs = {model.open};
  if (options.output == OutputFormat::kName) {
    std::string names;
    for (const v1::Job* job : model.jobs) names += job->name() + "\n";
    return PrintText(names);
  }
  if (!IsTable(options.output)) {
    nlohmann::ordered_json tree = {{"jobs", nlohmann::ordered_json::array()},
                                   {"readings", nlohmann::ordered_json::array()}};
    std::set<std::string> shown;
    for (const v1::Job* job : model.jobs) {
      shown.insert(job->uid());
      tree["jobs"].push_back(MessageToJson(*job));
    }
    if (news->readings != nullptr) {
      for (const v1::RankReadings& readings : news->readings->jobs())
        if (shown.contains(readings.job_uid())) tree["readings"].push_back(MessageToJson(readings));
    }
    return PrintText(RenderTree(tree, options.output));
  }
  std::string text;
  for (const std::string& line : TopPage(model, {}, MakeStyle(options))) text += line + "\n";
  return PrintText(text);
}

ExitCode RunTop(const TopArgs& args, GlobalOptions options) {
  const bool whole_screen = !args.once && IsTable(options.output) && Terminal::IsCapable();
  const auto endpoint = ResolveEndpoint(options);
  if (!endpoint.ok()) return Complain(endpoint.status());
  if (whole_screen) options.request_timeout_s = std::min(options.request_timeout_s, kLongestLookS);
  const auto api = ConnectApi(options);
  if (!api.ok()) return Complain(api.status());
  TopPlace place;
  if (!args.job.empty()) {
    const auto job = (*api)->GetJob(MakeJobRequest(options, args.job));
    if (!job.ok()) return Complain(job.status());
    place.open_uid = job->uid();
  }
  return whole_screen ? ShowTop(**api, place, endpoint->ToString(), options)
                      : PrintOnce(**api, place, endpoint->ToString(), options);
}

}  // namespace

void AddTop(const CommandContext& context) {
  CLI::App* command = context.app->add_subcommand(
      "top", "Jobs, and the ranks of one with step time, memory and phases, every second");
  auto args = std::make_shared<TopArgs>();
  command->add_option("job", args->job, "Begin with the ranks of this job: name or uid");
  command->add_flag("--once", args->once, "One plain page, as where there is no terminal");
  command->callback([=] { *context.run = [=] { return RunTop(*args, *context.options); }; });
}

}  // namespace mt::client
