// Commands as bits in the end-of-step vector. World rank 0 alone writes them, so that their sum
// over all ranks is what it wrote, and every rank acts on it at the same step boundary.
#pragma once

#include "worker/train/command.h"

namespace mt::train {

// A sum of powers of two, exact as a double; 0: nothing is asked for. Commands may come together.
struct CommandBits {
  bool stop_with_save = false;
  bool stop_without_save = false;
  bool checkpoint_now = false;
  bool hold = false;
  bool resume = false;
  bool update = false;
  bool release = false;
  bool profile = false;
  bool decode = false;
  bool save_due = false;   // checkpoint.every has passed on rank 0's clock
  bool time_over = false;  // training.exit_after has passed on rank 0's clock
  bool save_over = false;  // rank 0's part of the save beside training has ended

  void Add(CommandKind kind);
  double Encode() const;
  // CHECKs that `bits` is what Encode returns.
  static CommandBits Decode(double bits);
  bool empty() const { return *this == CommandBits{}; }
  friend bool operator==(const CommandBits&, const CommandBits&) = default;
};

}  // namespace mt::train
