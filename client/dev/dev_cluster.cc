// Starts the two daemons detached and learns the ports from the port file and from free addresses.
// What it started is on record before it waits for it, so that a later `dev down` finds it.
#include "client/dev/dev_cluster.h"

#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <filesystem>
#include <sys/file.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "client/session/api.h"
#include "client/session/local_port.h"
#include "common/base/clock.h"
#include "common/base/files.h"
#include "megatrain/v1/api.pb.h"

namespace mt::client {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr milliseconds kDevTick{50};
constexpr seconds kStartLimit{20};
constexpr seconds kStopGrace{20};

StatusOr<std::string> ProgramBesideThis(const std::string& name) {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return base::ErrnoError(error.value(), "read /proc/self/exe");
  const std::string path = (self.parent_path() / name).string();
  if (!base::Exists(path))
    return base::NotFound("{} is not beside mtctl (looked for {})", name, path);
  return path;
}

// The last lines of a daemon's log, for an error message.
std::string LogTail(const std::string& path) {
  const auto text = base::ReadFile(path);
  if (!text.ok()) return "";
  constexpr size_t kMost = 600;
  std::string tail = text->size() > kMost ? text->substr(text->size() - kMost) : *text;
  while (!tail.empty() && tail.back() == '\n') tail.pop_back();
  return tail;
}

// The port of "127.0.0.1:41234"; 0 where the text has none.
uint16_t PortOf(const std::string& address) {
  if (address.find(':') == std::string::npos) return 0;
  const auto endpoint = rpc::ParseEndpoint(address);
  return endpoint.ok() ? static_cast<uint16_t>(endpoint->port) : 0;
}

// Of a file, or of all files below a folder; 0 where there is none.
int64_t BytesBelow(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_regular_file(path, error))
    return static_cast<int64_t>(std::filesystem::file_size(path, error));
  int64_t bytes = 0;
  auto at = std::filesystem::recursive_directory_iterator(path, error);
  for (; !error && at != std::filesystem::recursive_directory_iterator(); at.increment(error)) {
    std::error_code gone;
    if (at->is_regular_file(gone) && !at->is_symlink(gone))
      bytes += static_cast<int64_t>(at->file_size(gone));
  }
  return bytes;
}

// A lock on the folder, held while the state changes.
StatusOr<base::Fd> Lock(const std::string& folder) {
  RETURN_IF_ERROR(base::MakeDirs(folder));
  const std::string path = base::JoinPath(folder, "lock");
  base::Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!fd) return base::ErrnoError(errno, "open " + path);
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    return base::FailedPrecondition("another `mtctl dev` command works on {}; wait for it", folder);
  }
  return fd;
}

}  // namespace

DevCluster::DevCluster(const std::string& folder)
    : folder_(std::filesystem::absolute(folder).lexically_normal().string()) {}

std::string DevCluster::Path(const std::string& name) const {
  return base::JoinPath(folder_, name);
}

StatusOr<std::optional<DevState>> DevCluster::Read() const {
  return ReadDevState(Path("dev.json"));
}

StatusOr<DevSettings> DevCluster::Settings(const std::optional<DevState>& old,
                                           const DevUpArgs& args) const {
  DevSettings known = old ? old->settings : DevSettings();
  if (!old) {
    std::error_code error;
    known.data_root = std::filesystem::current_path(error).string();
    if (error) return base::ErrnoError(error.value(), "current directory");
    known.checkpoint_root = Path("checkpoints");
    known.log_root = Path("logs");
  }
  return WithFlags(known, args);
}

StatusOr<DevState> DevCluster::Up(const DevUpArgs& args, DevFound* found) {
  ASSIGN_OR_RETURN(const base::Fd lock, Lock(folder_));
  ASSIGN_OR_RETURN(const std::optional<DevState> old, Read());
  ASSIGN_OR_RETURN(const DevSettings wanted, Settings(old, args));
  DevState state = old.value_or(DevState());
  *found = {.coordinator = IsAlive(state.coordinator), .worker = IsAlive(state.worker)};
  if (found->coordinator || found->worker) {
    const std::string flags = DifferingFlags(wanted, state.settings);
    if (!flags.empty()) {
      return base::FailedPrecondition(
          "a development cluster runs with {}; to run it with {}: mtctl dev down && mtctl dev up "
          "{} (jobs that run end, and go on from their checkpoints when they are submitted again)",
          DifferingFlags(state.settings, wanted), flags, flags);
    }
  }
  state.settings = wanted;
  if (!std::filesystem::is_directory(wanted.data_root)) {
    return base::NotFound("--data-root {} is not a folder", wanted.data_root);
  }
  if (found->coordinator && found->worker) return state;
  const Status started = StartMissing(*found, &state);
  if (!started.ok()) {
    if (!found->worker) (void)StopProcess(state.worker, kStopGrace);
    if (!found->coordinator) (void)StopProcess(state.coordinator, kStopGrace);
    return started;
  }
  return state;
}

Status DevCluster::StartMissing(const DevFound& found, DevState* state) const {
  // Each is on record before anything is waited for: the next `dev` command finds it.
  if (!found.coordinator) {
    RETURN_IF_ERROR(StartCoordinator(found.worker, state));
    RETURN_IF_ERROR(WriteDevState(Path("dev.json"), *state));
  }
  if (!found.worker) {
    RETURN_IF_ERROR(StartWorker(state));
    RETURN_IF_ERROR(WriteDevState(Path("dev.json"), *state));
  }
  RETURN_IF_ERROR(WaitForWorker(*state));
  return base::WriteFileAtomic(Path("endpoint"), state->endpoint + "\n");
}

Status DevCluster::StartCoordinator(bool worker_lives, DevState* state) const {
  ASSIGN_OR_RETURN(const std::string coordinator, ProgramBesideThis("mt-coordinator"));
  // A folder that is there but empty has lost its store: the coordinator then says what to do.
  if (!base::Exists(Path("coordinator"))) RETURN_IF_ERROR(MakeStore(coordinator));
  // At the address of before, where a living worker looks for it.
  std::string listen = "127.0.0.1:0";
  const uint16_t before = PortOf(state->endpoint);
  if (before != 0 && CanListenAt(before)) {
    listen = state->endpoint;
  } else if (worker_lives) {
    return base::FailedPrecondition(
        "the worker looks for its coordinator at {}, but {} listens there: stop that and repeat "
        "`mtctl dev up`, or end what the worker runs with `mtctl dev down`",
        state->endpoint, ListenerAt(before));
  }
  const std::string port_file = Path("coordinator.port");
  std::error_code error;
  std::filesystem::remove(port_file, error);
  ASSIGN_OR_RETURN(state->coordinator,
                   StartDetached({coordinator, "--listen", listen, "--port-file", port_file,
                                  "--state", Path("coordinator")},
                                 Path("coordinator.log")));
  return WaitForPort(state->coordinator, port_file, &state->endpoint);
}

Status DevCluster::StartWorker(DevState* state) const {
  ASSIGN_OR_RETURN(const std::string worker, ProgramBesideThis("mt-worker"));
  const DevSettings& settings = state->settings;
  for (const std::string& folder : {settings.checkpoint_root, settings.log_root, Path("worker")}) {
    RETURN_IF_ERROR(base::MakeDirs(folder));
  }
  const uint16_t http = PortOf(state->worker_http);
  if (http == 0 || !CanListenAt(http)) {
    ASSIGN_OR_RETURN(state->worker_http, FreeLocalAddress());
  }
  ASSIGN_OR_RETURN(state->worker,
                   StartDetached({worker, "--coordinator", state->endpoint, "--cpu-slots",
                                  std::to_string(settings.cpu_slots), "--gpus", settings.gpus,
                                  "--state", Path("worker"), "--data-root", settings.data_root,
                                  "--checkpoint-root", settings.checkpoint_root, "--log-root",
                                  settings.log_root, "--http-listen", state->worker_http},
                                 Path("worker.log")));
  return OkStatus();
}

Status DevCluster::WaitForPort(const ProcessId& coordinator, const std::string& port_file,
                               std::string* endpoint) const {
  const auto until = steady_clock::now() + kStartLimit;
  while (steady_clock::now() < until) {
    const auto text = base::ReadFile(port_file);
    if (text.ok() && !text->empty()) {
      *endpoint = text->substr(0, text->find('\n'));
      return OkStatus();
    }
    if (!IsAlive(coordinator)) break;
    std::this_thread::sleep_for(kDevTick);
  }
  return base::Internal("the coordinator did not start; its log ({}) ends with:\n{}",
                        Path("coordinator.log"), LogTail(Path("coordinator.log")));
}

Status DevCluster::WaitForWorker(const DevState& state) const {
  // A coordinator that starts again shows its nodes as they were before.
  const int64_t since = base::ToUnixMicros(base::Clock::Real()->WallNow());
  const auto until = steady_clock::now() + kStartLimit;
  ASSIGN_OR_RETURN(const rpc::Endpoint endpoint, rpc::ParseEndpoint(state.endpoint));
  while (steady_clock::now() < until && IsAlive(state.worker)) {
    auto api = Api::Connect(endpoint, seconds(5));
    if (api.ok()) {
      const auto nodes = (*api)->ListNodes();
      if (nodes.ok()) {
        for (const v1::Node& node : nodes->nodes()) {
          if (node.state() == v1::NODE_READY && node.last_heartbeat_us() >= since)
            return OkStatus();
        }
      }
    }
    std::this_thread::sleep_for(kDevTick);
  }
  return base::Internal("the worker did not register; its log ({}) ends with:\n{}",
                        Path("worker.log"), LogTail(Path("worker.log")));
}

Status DevCluster::RunToEnd(const std::vector<std::string>& argv, const std::string& name,
                            const std::string& log) const {
  ASSIGN_OR_RETURN(const ProcessId process, StartDetached(argv, log));
  const auto until = steady_clock::now() + kStopGrace;
  int status = 0;
  while (::waitpid(static_cast<pid_t>(process.pid), &status, WNOHANG) == 0) {
    if (steady_clock::now() >= until) {
      RETURN_IF_ERROR(StopProcess(process, seconds(1)));
      return base::Internal("`{}` did not end; its log ({}) ends with:\n{}", name, log,
                            LogTail(log));
    }
    std::this_thread::sleep_for(kDevTick);
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return OkStatus();
  return base::Internal("`{}` failed; its log ({}) ends with:\n{}", name, log, LogTail(log));
}

Status DevCluster::MakeStore(const std::string& coordinator) const {
  RETURN_IF_ERROR(base::MakeDirs(folder_));
  return RunToEnd({coordinator, "init", "--state", Path("coordinator")}, "mt-coordinator init",
                  Path("coordinator.log"));
}

// Ranks of jobs with on_agent_exit: continue outlive the worker, so they are stopped separately.
Status DevCluster::StopRanks() const {
  ASSIGN_OR_RETURN(const std::string worker, ProgramBesideThis("mt-worker"));
  return RunToEnd({worker, "stop-ranks", "--state", Path("worker")}, "mt-worker stop-ranks",
                  Path("worker.log"));
}

Status DevCluster::Down() {
  ASSIGN_OR_RETURN(const base::Fd lock, Lock(folder_));
  ASSIGN_OR_RETURN(const std::optional<DevState> state, Read());
  if (!state || (!IsAlive(state->coordinator) && !IsAlive(state->worker))) {
    // Ranks may have outlived a crash of both.
    if (base::Exists(Path("worker"))) RETURN_IF_ERROR(StopRanks());
    return base::NotFound("no development cluster is running ({})", folder_);
  }
  RETURN_IF_ERROR(StopProcess(state->worker, kStopGrace));
  const Status ranks = StopRanks();
  RETURN_IF_ERROR(StopProcess(state->coordinator, kStopGrace));
  RETURN_IF_ERROR(ranks);
  std::error_code ignored;
  std::filesystem::remove(Path("endpoint"), ignored);
  return OkStatus();
}

StatusOr<DevPurged> DevCluster::Purge() {
  ASSIGN_OR_RETURN(const base::Fd lock, Lock(folder_));
  ASSIGN_OR_RETURN(const std::optional<DevState> old, Read());
  if (old && (IsAlive(old->coordinator) || IsAlive(old->worker)))
    return base::FailedPrecondition("a development cluster is running: first `mtctl dev down`");
  // What lies in `worker` is all that knows of ranks that have outlived it.
  if (base::Exists(Path("worker"))) RETURN_IF_ERROR(StopRanks());
  DevPurged purged{.checkpoint_root = old ? old->settings.checkpoint_root : Path("checkpoints")};
  purged.checkpoint_bytes = BytesBelow(purged.checkpoint_root);
  // By name: what else may lie in the folder is not ours, and checkpoints are not for this.
  for (const char* name : {"coordinator", "worker", "logs", "coordinator.log", "worker.log",
                           "coordinator.port", "endpoint", "dev.json"}) {
    const int64_t bytes = BytesBelow(Path(name));
    std::error_code error;
    std::filesystem::remove_all(Path(name), error);
    if (error) return base::ErrnoError(error.value(), "remove " + Path(name));
    purged.bytes += bytes;
  }
  return purged;
}

}  // namespace mt::client
