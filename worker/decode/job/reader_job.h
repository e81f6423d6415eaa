// A job of kind generate or eval on its one rank: the flags that it stands for, below the roots of
// the process that runs it. It reads a checkpoint and writes text or scores to a sink, nothing
// else.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "common/base/status.h"
#include "worker/decode/reader_device.h"
#include "worker/decode/text_sink.h"

namespace megatrain::v1 {
class JobSpec;
}

namespace mt::decode {

struct ReaderJobArgs {
  const megatrain::v1::JobSpec* job = nullptr;  // completed and resolved; a reader (CHECK)
  std::string data_root;                        // absolute
  std::string checkpoint_root;                  // absolute
  std::string checkpoint_root_id = {};          // in its marker; empty: any root will do
  TextSink out;
  bool terminal = false;        // `out` is one
  bool shows_progress = false;  // on stderr, of scores
  bool live = false;            // stderr is a terminal that can be written over
  // Documents of a task of an eval job that are scored; may be empty, as all below.
  std::function<void(const std::string& task, int64_t done, int64_t all)> on_progress;
  std::function<void(std::string_view)> tell;  // a line at the end that says what was done
  std::function<bool()> interrupted;           // asked before each step and window
  BackendMaker make_backend;                   // empty: the first device of the job's kind
};

// Blocks until all is written. kCancelled: interrupted, what was there is written; kNotFound: the
// root or the checkpoint is not there, with the field and what to do; else RunGenerate's and
// RunEval's errors, and spec::ResolveBelow's by field. Device errors throw.
Status RunReaderJob(const ReaderJobArgs& args);

}  // namespace mt::decode
