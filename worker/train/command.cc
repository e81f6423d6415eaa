#include "worker/train/command.h"

#include <cmath>
#include <utility>

#include "common/base/check.h"

namespace mt::train {
namespace {

constexpr int kStopWithSaveBit = 1;
constexpr int kStopWithoutSaveBit = 2;
constexpr int kCheckpointNowBit = 4;
constexpr int kAllBits = kStopWithSaveBit | kStopWithoutSaveBit | kCheckpointNowBit;

}  // namespace

void CommandWord::Add(CommandKind kind) {
  switch (kind) {
    case CommandKind::kStopWithSave:
      stop_with_save = true;
      break;
    case CommandKind::kStopWithoutSave:
      stop_without_save = true;
      break;
    case CommandKind::kCheckpointNow:
      checkpoint_now = true;
      break;
  }
}

double CommandWord::Encode() const {
  return (stop_with_save ? kStopWithSaveBit : 0) + (stop_without_save ? kStopWithoutSaveBit : 0) +
         (checkpoint_now ? kCheckpointNowBit : 0);
}

CommandWord CommandWord::Decode(double word) {
  CHECK(word >= 0 && word <= kAllBits && word == std::floor(word)) << "command word " << word;
  const int bits = static_cast<int>(word);
  return {.stop_with_save = (bits & kStopWithSaveBit) != 0,
          .stop_without_save = (bits & kStopWithoutSaveBit) != 0,
          .checkpoint_now = (bits & kCheckpointNowBit) != 0};
}

std::vector<std::string> CommandsUnderWay::TakeActed(int64_t step) {
  std::vector<std::string> acted;
  while (!sent_.empty() && sent_.front().step <= step) {
    acted.push_back(std::move(sent_.front().id));
    sent_.pop_front();
  }
  return acted;
}

}  // namespace mt::train
