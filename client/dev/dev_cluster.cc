// Starts the two daemons detached, learns the ports from the port file and from free addresses, and
// keeps what it started in a JSON file, so that a later `dev down` finds it.
#include "client/dev/dev_cluster.h"

#include <arpa/inet.h>
#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <filesystem>
#include <netinet/in.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "client/session/api.h"
#include "common/base/files.h"
#include "megatrain/v1/api.pb.h"

namespace mt::client {
namespace {

using nlohmann::json;
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

json ToJson(const ProcessId& p) { return {{"pid", p.pid}, {"start_ticks", p.start_ticks}}; }

ProcessId ParseProcess(const json& in) {
  // get_ref instead of get: a fraction in the file is an error instead of being converted.
  return {in.at("pid").get_ref<const json::number_integer_t&>(),
          static_cast<uint64_t>(in.at("start_ticks").get_ref<const json::number_integer_t&>())};
}

// "127.0.0.1:PORT" with a port that was free a moment ago, so that two clusters on one machine do
// not clash.
StatusOr<std::string> FreeAddress() {
  const base::Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return base::ErrnoError(errno, "socket");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (::bind(fd.get(), generic, size) != 0 || ::getsockname(fd.get(), generic, &size) != 0)
    return base::ErrnoError(errno, "find a free port on 127.0.0.1");
  return fmt::format("127.0.0.1:{}", ntohs(address.sin_port));
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

DevCluster::DevCluster(std::string folder) : folder_(std::move(folder)) {}

std::string DevCluster::Path(const std::string& name) const {
  return base::JoinPath(folder_, name);
}

StatusOr<std::optional<DevState>> DevCluster::Read() const {
  const auto text = base::ReadFile(Path("dev.json"));
  if (absl::IsNotFound(text.status())) return std::optional<DevState>();
  if (!text.ok()) return text.status();
  try {
    const json in = json::parse(*text);
    return std::optional<DevState>(
        DevState{.coordinator = ParseProcess(in.at("coordinator")),
                 .worker = ParseProcess(in.at("worker")),
                 .endpoint = in.at("endpoint").get<std::string>(),
                 .worker_http = in.value("worker_http", ""),
                 .data_root = in.at("data_root").get<std::string>(),
                 .checkpoint_root = in.at("checkpoint_root").get<std::string>(),
                 .log_root = in.at("log_root").get<std::string>()});
  } catch (const json::exception& error) {
    return base::DataLoss("{} is damaged ({}); remove it after stopping what runs there",
                          Path("dev.json"), error.what());
  }
}

Status DevCluster::Write(const DevState& state) const {
  const json out = {{"coordinator", ToJson(state.coordinator)},
                    {"worker", ToJson(state.worker)},
                    {"endpoint", state.endpoint},
                    {"worker_http", state.worker_http},
                    {"data_root", state.data_root},
                    {"checkpoint_root", state.checkpoint_root},
                    {"log_root", state.log_root}};
  return base::WriteFileAtomic(Path("dev.json"), out.dump(2) + "\n");
}

StatusOr<DevState> DevCluster::Up(const DevUpArgs& args, bool* already) {
  ASSIGN_OR_RETURN(const base::Fd lock, Lock(folder_));
  ASSIGN_OR_RETURN(const std::optional<DevState> old, Read());
  *already = old && IsAlive(old->coordinator) && IsAlive(old->worker);
  if (*already) return *old;
  if (old) {
    RETURN_IF_ERROR(StopProcess(old->worker, kStopGrace));
    RETURN_IF_ERROR(StopProcess(old->coordinator, kStopGrace));
  }
  DevState state;
  const Status started = Start(args, &state);
  if (!started.ok()) {
    (void)StopProcess(state.worker, kStopGrace);
    (void)StopProcess(state.coordinator, kStopGrace);
    return started;
  }
  return state;
}

Status DevCluster::Start(const DevUpArgs& args, DevState* state) {
  ASSIGN_OR_RETURN(const std::string coordinator, ProgramBesideThis("mt-coordinator"));
  ASSIGN_OR_RETURN(const std::string worker, ProgramBesideThis("mt-worker"));
  std::error_code error;
  const auto absolute = [&](const std::string& path) {
    return std::filesystem::absolute(path, error).string();
  };
  state->data_root = absolute(args.data_root.empty() ? "." : args.data_root);
  state->checkpoint_root =
      absolute(args.checkpoint_root.empty() ? Path("checkpoints") : args.checkpoint_root);
  state->log_root = absolute(Path("logs"));
  if (error) return base::ErrnoError(error.value(), "current directory");
  if (!std::filesystem::is_directory(state->data_root)) {
    return base::NotFound("--data-root {} is not a folder", state->data_root);
  }
  // A folder that is there but empty has lost its store: the coordinator then says what to do.
  if (!base::Exists(Path("coordinator"))) RETURN_IF_ERROR(MakeStore(coordinator));
  for (const std::string& folder : {state->checkpoint_root, state->log_root, Path("worker")}) {
    RETURN_IF_ERROR(base::MakeDirs(folder));
  }
  const std::string port_file = Path("coordinator.port");
  std::filesystem::remove(port_file, error);
  ASSIGN_OR_RETURN(state->coordinator,
                   StartDetached({coordinator, "--listen", "127.0.0.1:0", "--port-file", port_file,
                                  "--state", Path("coordinator")},
                                 Path("coordinator.log")));
  RETURN_IF_ERROR(WaitForPort(state->coordinator, port_file, &state->endpoint));
  ASSIGN_OR_RETURN(state->worker_http, FreeAddress());
  ASSIGN_OR_RETURN(state->worker,
                   StartDetached({worker, "--coordinator", state->endpoint, "--cpu-slots",
                                  std::to_string(args.cpu_slots), "--gpus", args.gpus, "--state",
                                  absolute(Path("worker")), "--data-root", state->data_root,
                                  "--checkpoint-root", state->checkpoint_root, "--log-root",
                                  state->log_root, "--http-listen", state->worker_http},
                                 Path("worker.log")));
  RETURN_IF_ERROR(WaitForWorker(*state));
  RETURN_IF_ERROR(Write(*state));
  return base::WriteFileAtomic(Path("endpoint"), state->endpoint + "\n");
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
  const auto until = steady_clock::now() + kStartLimit;
  ASSIGN_OR_RETURN(const rpc::Endpoint endpoint, rpc::ParseEndpoint(state.endpoint));
  while (steady_clock::now() < until && IsAlive(state.worker)) {
    auto api = Api::Connect(endpoint, seconds(5));
    if (api.ok()) {
      const auto nodes = (*api)->ListNodes();
      if (nodes.ok()) {
        for (const v1::Node& node : nodes->nodes()) {
          if (node.state() == v1::NODE_READY) return OkStatus();
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
  while (IsAlive(process)) {
    if (steady_clock::now() >= until) {
      RETURN_IF_ERROR(StopProcess(process, seconds(1)));
      return base::Internal("`{}` did not end; its log ({}) ends with:\n{}", name, log,
                            LogTail(log));
    }
    std::this_thread::sleep_for(kDevTick);
  }
  return OkStatus();
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

}  // namespace mt::client
