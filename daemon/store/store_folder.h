// The coordinator's state folder before its database is opened: what is there, who holds it, who
// may read it. A folder without a database is never taken for a new cluster's: an empty mount or a
// mistyped path would then make a coordinator that knows no job. Functions block and are
// thread-safe.
#pragma once

#include <string>

#include "common/base/files.h"
#include "common/base/status.h"

namespace mt::daemon {

// File of the database in the folder.
inline constexpr char kDatabaseFile[] = "coordinator.db";

// OK where the folder holds a database. FailedPrecondition where it does not, with what to do:
// nothing there, a write-ahead log alone, or not a folder. PermissionDenied where it cannot be
// read.
Status CheckStoreFolder(const std::string& state_dir);
// OK where a new store may be made there: the folder is missing, or holds no database and no trace
// of one. FailedPrecondition and PermissionDenied as above.
Status CheckNoStore(const std::string& state_dir);

// Locks the folder for this process until the descriptor is closed; the kernel releases the lock
// however the process ends. FailedPrecondition names the process that holds it.
StatusOr<base::Fd> LockStoreFolder(const std::string& state_dir);

// Takes the state folder, the store's files and the history away from everybody but their owner
// (0700, 0600): they hold the cluster's key and what users submitted. Only this user's own are
// changed; a mount whose root belongs to another user stays as it is.
void CloseToOthers(const std::string& state_dir);

}  // namespace mt::daemon
