// The work is done in daemon/store and daemon/backup; here are flags and words.
#include "daemon/offline.h"

#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include "common/base/files.h"
#include "daemon/backup/restore.h"
#include "daemon/store/sqlite_store.h"
#include "daemon/store/store_check.h"
#include "daemon/store/store_folder.h"

namespace mt::daemon {
namespace {

Status Init(const std::string& state) {
  RETURN_IF_ERROR(SqliteStore::Create(state));
  fmt::print(
      "made the store of a new cluster in {}\nstart its coordinator: mt-coordinator --state {}\n",
      state, state);
  return OkStatus();
}

// Whole, or what is damaged, line by line.
Status Check(const std::string& state) {
  RETURN_IF_ERROR(CheckStoreFolder(state));
  ASSIGN_OR_RETURN(const base::Fd lock, LockStoreFolder(state));
  const std::string path = base::JoinPath(state, kDatabaseFile);
  ASSIGN_OR_RETURN(const StoreReport report, CheckDatabase(path, /*whole=*/true));
  for (const std::string& damage : report.damages) fmt::print("{}\n", damage);
  if (!report.damages.empty()) {
    return base::DataLoss("{} is damaged in {}{} places; {}", path,
                          report.damages.size() < kMaxDamages ? "" : "at least ",
                          report.damages.size(), kRestoreAdvice);
  }
  if (report.version == 1) {
    fmt::print("{}: its pages are whole; rows get checksums at the next start\n", path);
  } else {
    fmt::print("{}: {} rows, all whole\n", path, report.rows);
  }
  return OkStatus();
}

Status Restore(const std::string& state, const std::string& archive) {
  ASSIGN_OR_RETURN(const Restored restored, RestoreBackup(archive, state));
  fmt::print(
      "restored {} into {}: cluster {}, {} rows, {} files of history, term {}\nstart the "
      "coordinator: mt-coordinator --state {}; nothing new is placed until every node has "
      "answered\n",
      archive, state, restored.cluster_id.empty() ? "without an id" : restored.cluster_id,
      restored.rows, restored.history_files, restored.term, state);
  return OkStatus();
}

}  // namespace

void AddOfflineCommands(CLI::App* app, std::function<Status()>* run) {
  CLI::App* init =
      app->add_subcommand("init", "Makes the store of a new cluster; once, before its first start");
  auto state = std::make_shared<std::string>();
  auto archive = std::make_shared<std::string>();
  init->add_option("--state", *state, "Folder to make it in; one that has a store is refused")
      ->required();
  init->callback([run, state] { *run = [state] { return Init(*state); }; });
  CLI::App* check = app->add_subcommand(
      "check",
      "Reads a store whole and says what of it is damaged; its coordinator must be stopped");
  check->add_option("--state", *state, "The coordinator's folder")->required();
  check->callback([run, state] { *run = [state] { return Check(*state); }; });
  CLI::App* restore = app->add_subcommand(
      "restore", "Puts a backup back that `mtctl admin backup` wrote, and declares the restore");
  restore->add_option("--state", *state, "Folder to restore into: a new or an empty one")
      ->required();
  restore->add_option("--from", *archive, "The backup's file")->required();
  restore->callback(
      [run, state, archive] { *run = [state, archive] { return Restore(*state, *archive); }; });
}

}  // namespace mt::daemon
