// mt-coordinator: the cluster's one daemon. Flags, signals and exit codes; all else is
// daemon/service/coordinator.h.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <pthread.h>
#include <string>

#include <CLI/CLI.hpp>

#include "common/base/files.h"
#include "common/base/log.h"
#include "common/rpc/endpoint.h"
#include "common/rpc/version.h"
#include "daemon/service/coordinator.h"

namespace mt::daemon {
namespace {

// README.md lists them.
enum ExitCode : int {
  kExitOk = 0,
  kExitConfig = 64,
  kExitStore = 65,
  kExitListen = 69,
  kExitIo = 74
};

struct Flags {
  std::string listen = "127.0.0.1:7070";
  std::string state;
  std::string port_file;
  std::string log_level = "info";
};

int Fail(ExitCode code, const Status& status) {
  log::Flush();
  fmt::print(stderr, "mt-coordinator: {}\n", base::Message(status));
  return code;
}

ExitCode CodeOf(const Status& status) {
  if (status.code() == absl::StatusCode::kInvalidArgument) return kExitConfig;
  return base::ToStd(status.message()).starts_with("cannot listen") ? kExitListen : kExitStore;
}

int Serve(const Flags& flags) {
  const StatusOr<rpc::Endpoint> listen = rpc::ParseEndpoint(flags.listen);
  if (!listen.ok()) return Fail(kExitConfig, listen.status());
  // Signals come to this thread alone, through sigwait.
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  const pthread_t main_thread = pthread_self();
  auto started =
      Coordinator::Start({.listen = *listen,
                          .state_dir = flags.state,
                          .on_store_failure = [main_thread](const Status& status) {
                            log::Error("the store failed", {{"error", base::Message(status)}});
                            pthread_kill(main_thread, SIGUSR1);
                          }});
  if (!started.ok()) return Fail(CodeOf(started.status()), started.status());
  const std::string endpoint = (*started)->endpoint().ToString();
  log::Info("serving",
            {{"endpoint", endpoint}, {"state", flags.state}, {"version", rpc::Version()}});
  if (!flags.port_file.empty()) {
    const Status written = base::WriteFileAtomic(flags.port_file, endpoint + "\n");
    if (!written.ok()) return Fail(kExitIo, written);
  }
  int signal = 0;
  sigwait(&signals, &signal);
  log::Info("stopping", {{"signal", signal}});
  (*started)->Stop();
  log::Flush();
  return signal == SIGUSR1 ? kExitIo : kExitOk;
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app{"The coordinator of a Megatrain cluster: queue, placement, metrics, API."};
  app.add_option("--listen", flags.listen, "Address of the API, HOST:PORT; port 0 takes a free one")
      ->capture_default_str();
  app.add_option("--state", flags.state, "Folder of the durable state; one coordinator per folder")
      ->required();
  app.add_option("--port-file", flags.port_file, "File that receives the address as bound");
  app.add_option("--log-level", flags.log_level, "debug, info, warn or error")
      ->capture_default_str();
  app.set_version_flag("--version", std::string(rpc::Version()));
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
  return Serve(flags);
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
