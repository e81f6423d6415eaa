// One call for each word.
#include "worker/train/samples/text_turn.h"

#include <cstdint>

#include "common/base/check.h"
#include "worker/comm/process_group.h"

namespace mt::train {
namespace {

enum class Word : uint8_t { kGoOn, kTimeIsOver, kDone };

// Collective: rank 0's word, on every rank.
StatusOr<Word> Hear(Word mine, comm::ProcessGroup* group, engine::Engine* engine) {
  auto word = static_cast<int64_t>(mine);
  if (group != nullptr)
    RETURN_IF_ERROR(group->Broadcast(engine->stream(), &word, 1, kernels::DType::kI64, /*root=*/0));
  return static_cast<Word>(word);
}

}  // namespace

decode::GenerateHooks TextTurn::hooks() {
  decode::GenerateHooks calls;
  calls.interrupted = [this] {
    if (!stops_) Tell();
    return stops_;
  };
  // What is read of a prompt is read to its end.
  calls.on_piece = [this] { Tell(); };
  return calls;
}

void TextTurn::Tell() {
  args_.on_token();
  if (!told_.ok()) return;
  const Word mine = args_.is_late && args_.is_late() ? Word::kTimeIsOver : Word::kGoOn;
  const StatusOr<Word> heard = Hear(mine, args_.group, args_.engine);
  told_ = heard.status();
  stops_ = stops_ || !heard.ok() || *heard == Word::kTimeIsOver;
}

Status TextTurn::End() {
  RETURN_IF_ERROR(told_);
  return Hear(Word::kDone, args_.group, args_.engine).status();
}

Status TextTurn::Wait() {
  CHECK(args_.group != nullptr) << "nobody tells this rank anything";
  for (;;) {
    ASSIGN_OR_RETURN(const Word told, Hear(Word::kGoOn, args_.group, args_.engine));
    args_.on_token();
    if (told == Word::kDone) return OkStatus();
  }
}

}  // namespace mt::train
