// What a job of kind generate or eval has written, on standard output as it comes. One thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "client/session/session.h"

namespace megatrain::v1 {
class JobRef;
}

namespace mt::client {

class OutputReader {
 public:
  // What is printed of whole characters of the text; nullptr: they are, as the job wrote them.
  using Clean = std::string (*)(std::string_view text);
  // The connection outlives it.
  OutputReader(const Api& api, const v1::JobRef& job, Clean clean);
  OutputReader(const OutputReader&) = delete;
  OutputReader& operator=(const OutputReader&) = delete;
  ~OutputReader();

  // Prints what is there behind what it has printed already; with `follow` also what comes, until
  // the job's ranks are gone. Asks again where this program was too slow. kCancelled: stopped;
  // else the connection's, or write_error(). May be called again, behind a broken connection too.
  Status Read(bool follow, StreamStopper* stopper);
  // Why the last Read found no more, where that is not the text's end.
  const std::string& error() const { return error_; }
  // Standard output takes nothing more: there is nobody to print for. OK: it does.
  const Status& write_error() const { return write_error_; }
  // Whether something was printed, and no line feed behind it.
  bool in_line() const { return in_line_; }

 private:
  // Prints it; false where that failed.
  bool Take(const v1::LogChunk& chunk);

  const Api& api_;
  std::unique_ptr<v1::ReadOutputRequest> request_;  // its offset: the bytes that have come
  const Clean clean_;
  std::string half_;  // the beginning of a character that goes on in the next piece
  std::string error_;
  Status write_error_;
  bool in_line_ = false;
};

}  // namespace mt::client
