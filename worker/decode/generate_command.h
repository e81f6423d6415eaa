// `mt-rank --generate DIR`, which `mtctl generate` runs, and jobs of kind generate: text from a
// checkpoint, without touching the job that saved it.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "common/base/status.h"
#include "worker/decode/generate_flags.h"
#include "worker/decode/reader_device.h"
#include "worker/decode/text_sink.h"

namespace mt::decode {

struct GenerateArgs {
  std::string path;  // a directory of checkpoints, or one of them
  GenerateFlags flags;
  TextSink out;           // texts or JSON
  bool terminal = false;  // `out` is one
  // Called at the end with a line that says what was done; may be empty.
  std::function<void(std::string_view)> tell;
  std::function<bool()> interrupted;  // asked before each step; may be empty
  BackendMaker make_backend;          // empty: the flags name it
};

// Blocks until all is written. kCancelled: interrupted, what was there is written. Else what is
// wrong, in words for the user.
Status RunGenerate(const GenerateArgs& args);

}  // namespace mt::decode
