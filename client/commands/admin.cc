// `mtctl admin`: what operators ask of the coordinator itself. `admin backup` saves its state while
// it runs, into a file that is there as a whole or not at all; `admin restore` declares that its
// store was restored and is the one to obey.
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <memory>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "client/commands/commands.h"
#include "client/commands/verb.h"
#include "client/output/format.h"
#include "client/session/admin_api.h"
#include "client/session/interrupt.h"
#include "client/session/operator_api.h"
#include "common/base/files.h"
#include "megatrain/v1/api.pb.h"

namespace mt::client {
namespace {

using std::chrono::steady_clock;

// Shown while a backup comes in, on a terminal only.
class ByteProgress {
 public:
  void Add(size_t bytes) {
    bytes_ += static_cast<int64_t>(bytes);
    const auto now = steady_clock::now();
    if (!terminal_ || now < next_) return;
    next_ = now + std::chrono::milliseconds(200);
    std::fprintf(stderr, "\r%s ", FormatBytes(bytes_).c_str());
    shown_ = true;
  }
  int64_t bytes() const { return bytes_; }
  // Leaves the line for what is printed next.
  void Clear() const {
    if (shown_) std::fputs("\r\x1b[K", stderr);
  }

 private:
  const bool terminal_ = ::isatty(STDERR_FILENO) == 1;
  bool shown_ = false;
  int64_t bytes_ = 0;
  steady_clock::time_point next_{};
};

Status WriteAll(int fd, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(fd, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return base::ErrnoError(errno, "write " + path);
    bytes.remove_prefix(static_cast<size_t>(put));
  }
  return OkStatus();
}

// Gives the finished file its name, unless somebody has taken that meanwhile.
Status Place(int fd, const std::string& part, const std::string& file) {
  if (::fsync(fd) != 0) return base::ErrnoError(errno, "fsync " + part);
  if (::renameat2(AT_FDCWD, part.c_str(), AT_FDCWD, file.c_str(), RENAME_NOREPLACE) != 0)
    return base::ErrnoError(errno, fmt::format("rename {} to {}", part, file));
  const std::string folder = std::filesystem::path(file).parent_path().string();
  return base::SyncDir(folder.empty() ? "." : folder);
}

StatusOr<int64_t> Download(const AdminApi& api, const std::string& file) {
  const std::string part = file + ".part";
  const base::Fd fd(::open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd) {
    return base::Annotate(base::ErrnoError(errno, "create " + part),
                          "the backup is written there first; another may be under way, or was "
                          "interrupted: then remove it");
  }
  StreamStopper stopper;
  ByteProgress progress;
  Status status;
  {
    const InterruptScope scope(&stopper);
    status = api.Backup(&stopper, [&](std::string_view bytes) {
      progress.Add(bytes.size());
      return WriteAll(fd.get(), bytes, part);
    });
  }
  progress.Clear();
  if (status.ok()) status = Place(fd.get(), part, file);
  if (status.ok()) return progress.bytes();
  ::unlink(part.c_str());
  return status;
}

ExitCode Backup(const std::string& file, const GlobalOptions& options) {
  if (base::Exists(file)) {
    return Complain(
        base::FailedPrecondition("{} is there already; a backup overwrites nothing", file));
  }
  const auto endpoint = ResolveEndpoint(options);
  if (!endpoint.ok()) return Complain(endpoint.status());
  const auto api = AdminApi::Connect(*endpoint, ConnectLimit(options));
  if (!api.ok()) return Complain(api.status());
  const auto bytes = Download(**api, file);
  if (!bytes.ok()) return Complain(bytes.status());
  if (options.output == OutputFormat::kName) return PrintText(file + "\n");
  if (!IsTable(options.output)) {
    return PrintText(
        RenderTree(nlohmann::ordered_json{{"file", file}, {"bytes", *bytes}}, options.output));
  }
  return PrintText(
      fmt::format("backup of the coordinator in {} ({})\n", file, FormatBytes(*bytes)));
}

void AddBackup(CLI::App* admin, const CommandContext& context) {
  CLI::App* backup = admin->add_subcommand(
      "backup", "Save the coordinator's state (jobs, events, history) while it runs");
  auto file = std::make_shared<std::string>();
  backup->add_option("file", *file, "A new file, a tar archive; `mt-coordinator restore` reads it")
      ->required();
  backup->callback([file, options = context.options, run = context.run] {
    *run = [file, options] { return Backup(*file, *options); };
  });
}

struct RestoreArgs {
  std::string reason;
  bool yes = false;
};

ExitCode DeclareRestore(const RestoreArgs& args, const GlobalOptions& options) {
  ExitCode code = kExitOk;
  if (!Confirmed(args.yes,
                 "Declare that this coordinator's store is the one to go on with? Every other "
                 "coordinator of the cluster is disobeyed from then on.",
                 &code))
    return code;
  auto api = ConnectApi(options);
  if (!api.ok()) return Complain(api.status());
  v1::DeclareRestoreRequest request;
  request.set_reason(args.reason);
  const auto server = OperatorApi(api->get()).DeclareRestore(request);
  if (!server.ok()) return Complain(server.status());
  if (IsTable(options.output)) {
    return PrintText(fmt::format(
        "restore declared: term {} of cluster {} begins; jobs are placed once every node has "
        "registered or is declared dead (mtctl get nodes, mtctl describe JOB)\n",
        server->term(), server->cluster_id()));
  }
  return Print({.message = &*server, .names = {server->cluster_id()}}, options);
}

void AddRestore(CLI::App* command, const CommandContext& context) {
  CLI::App* restore = command->add_subcommand(
      "restore", "Say that the coordinator's store was restored, and is the one to obey");
  auto args = std::make_shared<RestoreArgs>();
  restore->add_option("--reason", args->reason, "Kept with the event");
  AddYesFlag(restore, &args->yes);
  restore->callback([=, options = context.options, run = context.run] {
    *run = [=] { return DeclareRestore(*args, *options); };
  });
}

}  // namespace

void AddAdmin(const CommandContext& context) {
  CLI::App* admin = context.app->add_subcommand("admin", "What operators do to the coordinator")
                        ->require_subcommand(1);
  AddBackup(admin, context);
  AddRestore(admin, context);
}

}  // namespace mt::client
