// A list begins with the id that the first one is predicted from, which no window predicts.
#include "worker/decode/scores/score_window.h"

#include <algorithm>
#include <string>

#include "common/base/check.h"
#include "worker/decode/scores/task_text.h"

namespace mt::decode {
namespace {

Status EncodeApart(const PairArgs& args, std::vector<int32_t>* context,
                   std::vector<int32_t>* continuation) {
  RETURN_IF_ERROR(args.tokenizer->Encode(args.context, context));
  return args.tokenizer->Encode(args.continuation, continuation);
}

Status EncodeJoined(const PairArgs& args, std::vector<int32_t>* context,
                    std::vector<int32_t>* continuation) {
  std::string_view before = args.context;
  before.remove_suffix(TrailingSpace(before));
  RETURN_IF_ERROR(args.tokenizer->Encode(before, context));
  std::vector<int32_t> whole;
  RETURN_IF_ERROR(
      args.tokenizer->Encode(std::string(args.context) + std::string(args.continuation), &whole));
  const auto cut = static_cast<int64_t>(std::min(context->size(), whole.size()));
  continuation->assign(whole.begin() + cut, whole.end());
  return OkStatus();
}

}  // namespace

std::vector<ScoreWindow> RollingWindows(int64_t ids, int64_t window, int64_t stride) {
  CHECK(stride >= 1 && stride <= window) << "stride " << stride << ", window " << window;
  std::vector<ScoreWindow> windows;
  if (ids < 2) return windows;
  int64_t end = std::min(window, ids - 1) + 1;
  windows.push_back({.begin = 0, .end = end, .scored = end - 1});
  while (end < ids) {
    const int64_t scored = std::min(stride, ids - end);
    end += scored;
    windows.push_back({.begin = end - window - 1, .end = end, .scored = scored});
  }
  return windows;
}

StatusOr<ScoredPair> EncodePair(const PairArgs& args) {
  std::vector<int32_t> context, continuation;
  RETURN_IF_ERROR(args.apart ? EncodeApart(args, &context, &continuation)
                             : EncodeJoined(args, &context, &continuation));
  if (continuation.empty())
    return base::InvalidArgument("\"{}\" has no token of its own", args.continuation);
  const auto scored = std::ssize(continuation);
  if (scored > args.window) {
    return base::InvalidArgument("\"{:.40}\" has {} tokens, and the window {}", args.continuation,
                                 scored, args.window);
  }
  if (context.empty()) {
    if (args.tokenizer->eod() == data::kNoEod) {
      return base::InvalidArgument(
          "the context is empty, and the {} tokenizer has no end-of-document token to begin with",
          args.tokenizer->name());
    }
    context = {args.tokenizer->eod()};
  }
  ScoredPair pair{.ids = std::move(context), .scored = scored};
  pair.ids.insert(pair.ids.end(), continuation.begin(), continuation.end());
  const int64_t over = std::ssize(pair.ids) - (args.window + 1);
  pair.cut = over > 0;
  if (pair.cut) pair.ids.erase(pair.ids.begin(), pair.ids.begin() + over);
  return pair;
}

}  // namespace mt::decode
