// Texts that tell calls of ops apart: for a program and for people.
#pragma once

#include <string>

#include "kernels/replay/op_call.h"

namespace mt::kernels::replay {

// Returns a text of everything that determines how long a call takes: entry, dtypes and shapes of
// all operands, which are absent, and marks. Two calls with the same signature differ only in
// addresses and contents.
std::string SignatureOf(const OpCall& call);
// Returns a short text for people: the entry, the shapes of its first three matrices (or operands),
// and the marks.
std::string LabelOf(const OpCall& call);

}  // namespace mt::kernels::replay
