// The files of an export, which get their names only when all of them are whole. Until then each is
// written beside its place, under a name that no other export has. Blocking; used by one thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/files.h"
#include "common/base/status.h"

namespace mt::hf {

class NewFiles {
 public:
  explicit NewFiles(std::string folder);
  NewFiles(const NewFiles&) = delete;
  NewFiles& operator=(const NewFiles&) = delete;
  // Removes those that have no name yet. What a process leaves that is killed stays:
  // NAME.partial-DIGITS.
  ~NewFiles();

  // Where a new file of this name is to be written; nothing is there yet.
  std::string Add(const std::string& name);
  Status AddText(const std::string& name, std::string_view text);

  // Gives them their names, in the order in which they were added, and syncs the folder. Where
  // `keeps` says so of a name (empty: of none), a file that has it by now stays: kAlreadyExists,
  // and none of the new ones is there. Such names come first. Other commits of this folder wait for
  // the object's end, where the file system has locks.
  Status Commit(const std::function<bool(const std::string& name)>& keeps);

  std::vector<std::string> names() const;  // in the order in which they were added

 private:
  struct NewFile {
    std::string name, path;
    bool named = false;
  };
  // Takes the names back that were given.
  void Withdraw();
  std::string PathOf(const NewFile& file) const { return base::JoinPath(folder_, file.name); }

  const std::string folder_;
  std::vector<NewFile> files_;
  base::Fd lock_;
};

}  // namespace mt::hf
