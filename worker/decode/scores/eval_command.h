// `mt-rank --eval DIR`, which `mtctl eval` runs, and jobs of kind eval: scores of a checkpoint,
// without touching the job that saved it.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "common/base/status.h"
#include "worker/decode/reader_device.h"
#include "worker/decode/scores/eval_flags.h"
#include "worker/decode/text_sink.h"

namespace mt::decode {

struct EvalArgs {
  std::string path;  // a directory of checkpoints, or one of them
  EvalFlags flags;
  // Absolute folder that the files of tasks must lie below, with their links resolved; empty: they
  // lie anywhere.
  std::string data_root;
  TextSink out;           // scores or JSON
  bool terminal = false;  // `out` is one
  // Progress is told on stderr, as lines now and then or, where it is a terminal, in one place.
  bool shows_progress = false;
  bool live = false;  // stderr is a terminal, on which a line can be written over
  // Called with the documents of a task that are scored; may be empty, as all below.
  std::function<void(const std::string& task, int64_t done, int64_t all)> on_progress;
  // Called at the end with a line that says what was done.
  std::function<void(std::string_view)> tell;
  std::function<bool()> interrupted;  // asked before each window
  BackendMaker make_backend;          // empty: the flags name it
};

// Blocks until all is written. kCancelled: interrupted, the tasks that were done are written. Else
// what is wrong, in words for the user.
Status RunEval(const EvalArgs& args);

}  // namespace mt::decode
