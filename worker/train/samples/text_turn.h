// While ranks of the first replica write a text, all ranks stay together: with every token, and
// every piece of a prompt, rank 0 tells them whether to go on. So those that write stop at the same
// token, and those that wait see that something moves, which their watchdogs look for.
#pragma once

#include <functional>
#include <utility>

#include "common/base/status.h"
#include "worker/decode/generator.h"
#include "worker/engine/engine.h"

namespace mt::comm {
class ProcessGroup;
}

namespace mt::train {

// One text, or several in a row; one thread, that of training. All ranks make one together.
class TextTurn {
 public:
  // Pointers and functions outlive the object.
  struct Args {
    comm::ProcessGroup* group = nullptr;  // of all ranks; nullptr: nobody waits, nothing is told
    engine::Engine* engine = nullptr;
    std::function<void()> on_token;  // called with every word that is told or heard
    std::function<bool()> is_late;   // asked on rank 0: the text is to stop; empty: never
  };
  explicit TextTurn(Args args) : args_(std::move(args)) {}
  TextTurn(const TextTurn&) = delete;
  TextTurn& operator=(const TextTurn&) = delete;

  // For Generate, on ranks that write.
  decode::GenerateHooks hooks();
  // Of what was told until now: the group's error, behind which a text is void.
  const Status& status() const { return told_; }
  // On ranks that write, behind the text: those that wait go on.
  Status End();
  // On other ranks: until those that write have ended.
  Status Wait();

 private:
  void Tell();

  const Args args_;
  bool stops_ = false;
  Status told_;
};

}  // namespace mt::train
