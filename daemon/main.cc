// mt-coordinator: the cluster's one daemon. This file holds flags, signals and exit codes;
// everything else is started by daemon/service/coordinator.h.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <pthread.h>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include <CLI/CLI.hpp>

#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/notify.h"
#include "common/rpc/endpoint.h"
#include "common/rpc/version.h"
#include "daemon/offline.h"
#include "daemon/service/coordinator.h"
#include "daemon/store/store_folder.h"

namespace mt::daemon {
namespace {

// Exit codes; README.md explains them.
enum ExitCode : int {
  kExitOk = 0,
  kExitConfig = 64,
  kExitStore = 65,
  kExitListen = 69,
  kExitIo = 74
};

constexpr uint16_t kHttpPort = 7071;
constexpr uint16_t kHealthPort = 7073;

int SecondsOf(std::chrono::milliseconds time) {
  return static_cast<int>(std::chrono::duration_cast<std::chrono::seconds>(time).count());
}

struct Flags {
  std::string listen = "127.0.0.1:7070";
  std::string http_listen;
  std::string health_listen;
  std::string state;
  std::string port_file;
  std::string http_port_file;
  std::string log_level = "info";
  int suspect_after = SecondsOf(Coordinator::Config().silence.suspect_after);
  int lost_after = SecondsOf(Coordinator::Config().silence.lost_after);
  int phantom_after = SecondsOf(Coordinator::Config().silence.phantom_after);
  bool insecure = false;
  bool check_config = false;
};

int Fail(ExitCode code, const Status& status) {
  log::Flush();
  fmt::print(stderr, "mt-coordinator: {}\n", base::Message(status));
  return code;
}

// A store that is damaged, newer or held by another coordinator stays so; what a disk or a file
// system refuses may work at the next start.
ExitCode CodeOf(const Status& status) {
  if (status.code() == absl::StatusCode::kInvalidArgument) return kExitConfig;
  if (base::ToStd(status.message()).starts_with("cannot listen")) return kExitListen;
  const bool stays = status.code() == absl::StatusCode::kDataLoss ||
                     status.code() == absl::StatusCode::kFailedPrecondition;
  return stays ? kExitStore : kExitIo;
}

// The addresses and limits from the flags; Serve fills the other members.
StatusOr<Coordinator::Config> Configure(const Flags& flags) {
  Coordinator::Config config;
  config.state_dir = flags.state;
  config.insecure = flags.insecure;
  config.silence = {.suspect_after = std::chrono::seconds(flags.suspect_after),
                    .lost_after = std::chrono::seconds(flags.lost_after),
                    .phantom_after = std::chrono::seconds(flags.phantom_after)};
  ASSIGN_OR_RETURN(config.listen, rpc::ParseEndpoint(flags.listen));
  if (!flags.http_listen.empty()) {
    ASSIGN_OR_RETURN(config.http_listen, rpc::ParseEndpoint(flags.http_listen, kHttpPort));
  } else {
    config.http_listen.port = config.listen.port == 0 ? 0 : kHttpPort;
  }
  if (!flags.health_listen.empty()) {
    ASSIGN_OR_RETURN(config.health_listen, rpc::ParseEndpoint(flags.health_listen, kHealthPort));
  }
  RETURN_IF_ERROR(Coordinator::Check(config));
  return config;
}

// --check-config: reports what a start would refuse, as far as that is known without listening and
// without taking the store's lock.
int CheckConfig(const Flags& flags) {
  const Status store = CheckStoreFolder(flags.state);
  if (!store.ok()) return Fail(kExitStore, store);
  fmt::print("the configuration is valid\n");
  return kExitOk;
}

Status WritePorts(const Flags& flags, const Coordinator& coordinator) {
  if (!flags.http_port_file.empty()) {
    RETURN_IF_ERROR(
        base::WriteFileAtomic(flags.http_port_file, coordinator.http_endpoint().ToString() + "\n"));
  }
  if (flags.port_file.empty()) return OkStatus();
  return base::WriteFileAtomic(flags.port_file, coordinator.endpoint().ToString() + "\n");
}

void LogServing(const Flags& flags, const Coordinator& coordinator) {
  const auto health = coordinator.health_endpoint();
  log::Info("serving", {{"endpoint", coordinator.endpoint().ToString()},
                        {"http", coordinator.http_endpoint().ToString()},
                        {"health", health.has_value() ? health->ToString() : "none"},
                        {"state", flags.state},
                        {"version", rpc::Version()}});
  if (flags.insecure) {
    log::Warn("--insecure: the API is plain text and open to anyone who can reach it",
              {{"endpoint", coordinator.endpoint().ToString()},
               {"http", coordinator.http_endpoint().ToString()}});
  }
}

base::Notifier::Environment ManagersEnvironment() {
  // NOLINTBEGIN(concurrency-mt-unsafe): before any thread starts
  return {.notify_socket = std::getenv("NOTIFY_SOCKET"),
          .watchdog_usec = std::getenv("WATCHDOG_USEC"),
          .watchdog_pid = std::getenv("WATCHDOG_PID"),
          .pid = getpid()};
  // NOLINTEND(concurrency-mt-unsafe)
}

int Serve(const Flags& flags, Coordinator::Config config) {
  // Blocked in all threads, so that signals reach this thread only, through sigwait.
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  base::Notifier notifier(ManagersEnvironment());
  notifier.Status("loading the store");
  config.notifier = &notifier;
  config.on_store_failure = [main_thread = pthread_self()](const Status& status) {
    log::Error("the store failed", {{"error", base::Message(status)}});
    pthread_kill(main_thread, SIGUSR1);
  };
  auto started = Coordinator::Start(config);
  if (!started.ok()) return Fail(CodeOf(started.status()), started.status());
  LogServing(flags, **started);
  const Status written = WritePorts(flags, **started);
  if (!written.ok()) return Fail(kExitIo, written);
  notifier.Ready(fmt::format("serving on {}", (*started)->endpoint().ToString()));
  int signal = 0;
  sigwait(&signals, &signal);
  log::Info("stopping", {{"signal", signal}});
  notifier.Stopping("stopping; jobs go on");
  (*started)->Stop();
  log::Flush();
  return signal == SIGUSR1 ? kExitIo : kExitOk;
}

void AddLimits(CLI::App* app, Flags* flags) {
  const CLI::Range seconds(1, 86'400);
  app->add_option("--suspect-after", flags->suspect_after,
                  "Seconds without a heartbeat after which a worker is suspect")
      ->capture_default_str()
      ->check(seconds);
  app->add_option("--lost-after", flags->lost_after,
                  "Seconds without a heartbeat after which a worker is lost")
      ->capture_default_str()
      ->check(seconds);
  app->add_option("--phantom-after", flags->phantom_after,
                  "Seconds that a rank of a job may be on no node, or do otherwise than was asked")
      ->capture_default_str()
      ->check(seconds);
}

void AddOptions(CLI::App* app, Flags* flags) {
  app->add_option("--listen", flags->listen,
                  "Address of the API, HOST:PORT; port 0 takes a free one")
      ->capture_default_str();
  app->add_option("--http-listen", flags->http_listen,
                  "Address of /metrics, /livez and /readyz [127.0.0.1:7071; a free port where "
                  "--listen has port 0]");
  app->add_option("--health-listen", flags->health_listen,
                  "Address of grpc.health.v1 alone, for probes; without it there is none");
  app->add_option("--state", flags->state,
                  "Folder of the durable state; one coordinator per folder");
  app->add_option("--port-file", flags->port_file, "File that receives the API's address as bound");
  app->add_option("--http-port-file", flags->http_port_file,
                  "File that receives the HTTP address as bound");
  app->add_option("--log-level", flags->log_level, "debug, info, warn or error")
      ->capture_default_str();
  AddLimits(app, flags);
  app->add_flag("--insecure", flags->insecure,
                "Listen beyond this machine although there is no TLS and no authentication");
  app->add_flag("--check-config", flags->check_config, "Check the flags, then exit");
  app->set_version_flag("--version", std::string(rpc::Version()));
}

int Main(int argc, char** argv) {
  // What it writes holds the cluster's key and what users submit.
  umask(0077);
  Flags flags;
  std::function<Status()> offline;
  CLI::App app{"The coordinator of a Megatrain cluster: queue, placement, metrics, API."};
  AddOptions(&app, &flags);
  AddOfflineCommands(&app, &offline);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitOk : kExitConfig;
  }
  log::Config config{.binary = "mt-coordinator"};
  if (!log::ParseLevel(flags.log_level, &config.level)) {
    return Fail(kExitConfig, base::InvalidArgument("--log-level {}: not debug, info, warn or error",
                                                   flags.log_level));
  }
  log::Init(config);
  if (offline) {
    const Status done = offline();
    return done.ok() ? kExitOk : Fail(CodeOf(done), done);
  }
  if (flags.state.empty())
    return Fail(kExitConfig,
                base::InvalidArgument("--state is required: the coordinator's folder"));
  auto coordinator = Configure(flags);
  if (!coordinator.ok()) return Fail(kExitConfig, coordinator.status());
  if (flags.check_config) return CheckConfig(flags);
  return Serve(flags, std::move(coordinator).value());
}

}  // namespace
}  // namespace mt::daemon

// NOLINTNEXTLINE(bugprone-exception-escape): only out of memory throws here, and ends the program.
int main(int argc, char** argv) {
  try {
    return mt::daemon::Main(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "mt-coordinator: %s\n", error.what());
    return EXIT_FAILURE;
  }
}
