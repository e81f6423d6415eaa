// Which tokens are predicted from which: windows over a document that is longer than the model's
// positions, and what follows a context. Windows are those of EleutherAI's evaluation harness.
// Pure; thread-safe.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "worker/data/tokenizer/tokenizer.h"

namespace mt::decode {

// Of a list of ids: those of [begin, end - 1) are read, the last `scored` of [begin, end)
// predicted.
struct ScoreWindow {
  int64_t begin = 0, end = 0;
  int64_t scored = 0;
};

// Windows of at most `window` ids that are read, which together predict each of `ids` ids but the
// first, once: the first window as many as there are, each later one `stride`, with as many before
// them as are left of `window`. 1 <= stride <= window.
std::vector<ScoreWindow> RollingWindows(int64_t ids, int64_t window, int64_t stride);

// A context and what follows it, as ids: [context, continuation].
struct ScoredPair {
  std::vector<int32_t> ids;
  int64_t scored = 0;  // of the continuation, at the end; at least 1
  bool cut = false;    // the beginning of the context is gone
};
struct PairArgs {
  const data::Tokenizer* tokenizer = nullptr;
  std::string_view context, continuation;
  // Each by itself, as llm.c does. Else both as one text, of which the continuation has the ids
  // behind as many as the context has; white space at the context's end goes to the continuation.
  bool apart = false;
  int64_t window = 0;  // ids that are read at most: as many of the context's first go as need be
};
// A context without ids is the tokenizer's end-of-document token. kInvalidArgument: it has none,
// the continuation has no ids of its own, or more than `window`; the tokenizer's errors.
StatusOr<ScoredPair> EncodePair(const PairArgs& args);

}  // namespace mt::decode
