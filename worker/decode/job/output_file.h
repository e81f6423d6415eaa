// The text that a reader's job has written, as a file beside the logs of its rank: whoever asks for
// it is read to from there, also behind the job's end. Used by one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "common/base/files.h"
#include "common/base/status.h"

namespace mt::decode {

class OutputFile {
 public:
  // An empty file at `path`, in place of what another placement of the job has written there: a
  // process of that one, which may still be at work, goes on in a file that has no name any more.
  // Its folder exists. A device at `path` is written to as it is. Errors: the system's.
  static StatusOr<std::unique_ptr<OutputFile>> Create(const std::string& path, int64_t most_bytes);

  // Appends the text. What would make it longer than `most_bytes` is left out, from the border of a
  // character on, and the file is full then: nothing more is appended. Errors: the system's.
  Status Append(std::string_view text);
  bool full() const { return full_; }
  int64_t bytes() const { return bytes_; }

 private:
  OutputFile(base::Fd fd, std::string path, int64_t most_bytes)
      : fd_(std::move(fd)), path_(std::move(path)), most_bytes_(most_bytes) {}

  const base::Fd fd_;
  const std::string path_;
  const int64_t most_bytes_;
  int64_t bytes_ = 0;
  bool full_ = false;
};

}  // namespace mt::decode
