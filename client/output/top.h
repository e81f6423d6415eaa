// The pages of `mtctl top`: a list of jobs, and the ranks of one as the grid of its mesh. State in,
// lines out: what does not fit into the width is left out as whole fields, what does not fit into
// the height as whole lines, and no line is longer than the width. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "client/output/style.h"

namespace megatrain::v1 {
class Job;
class RankReadings;
}  // namespace megatrain::v1

namespace mt::client {

// What the user looks at.
struct TopPlace {
  std::string open_uid;      // job whose ranks are shown; empty: the list of jobs
  std::string selected_uid;  // in the list; empty, or a job that is gone: the first
  int rank = 0;              // selected among the ranks of the open job
  bool paused = false;       // the page stays as it is
};

// What is shown. Pointers are borrowed.
struct TopModel {
  TopPlace place;
  std::vector<const megatrain::v1::Job*> jobs;
  const megatrain::v1::Job* open = nullptr;               // of place.open_uid; null: not known
  const megatrain::v1::RankReadings* readings = nullptr;  // of the open job; null: none
  std::string endpoint;
  bool answered = true;  // there was a first answer
  std::string trouble;   // why there is no answer; empty: there is
  double silent_s = 0;   // how long there was no answer; 0: there was
  bool keys = true;      // list the keys: the page is on a terminal
};

// 0: without a limit.
struct TopSize {
  int width = 0;
  int height = 0;
};

std::vector<std::string> TopPage(const TopModel& model, const TopSize& size, const Style& style);

enum class TopKey {
  kUp,
  kDown,
  kLeft,
  kRight,
  kEnter,
  kBack,
  kPause,
  kQuit,
  kInterrupt,
  kSuspend,
};

// Takes the keys from the front of *bytes as a terminal sends them. A sequence that has only begun
// stays; with `last` nothing more of it comes, and an ESC alone is kBack. Other keys are dropped.
std::vector<TopKey> TakeTopKeys(std::string* bytes, bool last);

// Where a key leads; kQuit, kInterrupt and kSuspend lead nowhere.
TopPlace MoveTop(const TopModel& model, TopKey key);

}  // namespace mt::client
