// The assignment of bits. Ranks of one job run the same program, so it is no format.
#include "worker/train/command_bits.h"

#include <array>
#include <cmath>

#include "common/base/check.h"

namespace mt::train {
namespace {

using Flag = bool CommandBits::*;
// Bit i is kFlags[i]; first the kinds of commands, in the order of CommandKind, then what rank 0
// finds.
constexpr std::array<Flag, 12> kFlags = {
    &CommandBits::stop_with_save, &CommandBits::stop_without_save,
    &CommandBits::checkpoint_now, &CommandBits::hold,
    &CommandBits::resume,         &CommandBits::update,
    &CommandBits::release,        &CommandBits::profile,
    &CommandBits::decode,         &CommandBits::save_due,
    &CommandBits::time_over,      &CommandBits::save_over};
constexpr int kAllBits = (1 << kFlags.size()) - 1;

}  // namespace

void CommandBits::Add(CommandKind kind) { this->*kFlags[static_cast<size_t>(kind)] = true; }

double CommandBits::Encode() const {
  int bits = 0;
  for (size_t i = 0; i < kFlags.size(); ++i) bits |= this->*kFlags[i] ? 1 << i : 0;
  return bits;
}

CommandBits CommandBits::Decode(double bits) {
  CHECK(bits >= 0 && bits <= kAllBits && bits == std::floor(bits)) << "command bits " << bits;
  const int set = static_cast<int>(bits);
  CommandBits out;
  for (size_t i = 0; i < kFlags.size(); ++i) out.*kFlags[i] = (set & 1 << i) != 0;
  return out;
}

}  // namespace mt::train
