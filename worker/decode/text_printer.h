// Continuations as text for people, in the order of the request: the first that goes on is written
// as it comes, later ones when their turn is there. Control characters are written out unless
// `raw`.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "worker/decode/text_sink.h"

namespace mt::decode {

// Used by one thread.
class TextPrinter {
 public:
  // `prompts` are their texts, which are written before each continuation. `out` gets at most one
  // piece a call.
  TextPrinter(TextSink out, std::vector<std::string> prompts, int64_t samples, bool raw);

  // As GenerateHooks::on_text.
  void Add(int64_t prompt, int64_t sample, std::string_view text, bool ended);
  // Writes what waits for its turn. Call once, when nothing comes any more.
  void Finish();
  // The first error of `out`, which gets nothing more then.
  const Status& status() const { return status_; }

 private:
  struct Waiting {
    std::string text;
    bool begun = false;
    bool ended = false;
  };
  void Write(std::string_view text);
  // Hands on what was written since the last time.
  void Flush();
  // Begins the continuation whose turn it is.
  void Begin();
  // Writes and passes on while what is there has ended.
  void Advance();

  const TextSink out_;
  const std::vector<std::string> prompts_;
  const int64_t samples_;
  const bool raw_;
  std::vector<Waiting> all_;
  size_t turn_ = 0;
  size_t headed_ = 0;  // continuations that have their heading
  std::string piece_;  // written, and not handed on yet
  Status status_;
};

}  // namespace mt::decode
