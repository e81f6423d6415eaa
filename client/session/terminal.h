// The terminal as a whole screen: keys as they are pressed, pages drawn with ANSI sequences. It is
// given back as it was on every way out: the destructor, signals that end the program, Ctrl-Z. At
// most one exists at a time; one thread, but for Wake.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "common/base/files.h"
#include "common/base/status.h"

namespace mt::client {

class Terminal {
 public:
  // True where standard input and output are a terminal that can redraw.
  static bool IsCapable();
  // Takes the screen. Errors are the system's.
  static StatusOr<std::unique_ptr<Terminal>> Open();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;
  ~Terminal();

  struct Size {
    int columns = 80;
    int rows = 24;
  };
  Size GetSize() const;

  // What ended a wait.
  struct Event {
    bool closed = false;     // there is no terminal any more
    bool suspended = false;  // somebody asked for Suspend (SIGTSTP)
  };
  // Waits for keys, whose bytes are appended to *bytes, a change of size, the return from a stop,
  // or Wake; at most `limit`.
  Event Wait(std::chrono::milliseconds limit, std::string* bytes);
  // Ends a wait. Any thread.
  void Wake() const;
  // Replaces the page. Lines fit the screen.
  void Draw(const std::vector<std::string>& lines);
  // Gives the screen back; nothing is drawn or waited for any more.
  void Leave();
  // Gives the screen back, stops the process until it is told to go on, and takes the screen again.
  void Suspend();

 private:
  Terminal(base::Fd pipe_out, base::Fd pipe_in);

  const base::Fd pipe_out_;  // read end: a byte for each signal, and for each Wake
  const base::Fd pipe_in_;
};

}  // namespace mt::client
