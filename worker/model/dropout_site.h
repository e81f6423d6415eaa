// Places of the network where dropout acts. Each has its own stream of random bits, named
// "dropout/<global layer>/<site>" and seeded with training.seed, so that a mask depends on what it
// masks and never on the layout (docs/design/numerics.md#dropout; kernels/core/random.h has the
// counters).
#pragma once

#include <cstdint>

#include "kernels/core/random.h"

namespace mt::model {

enum class Site : uint8_t {
  kEmbedding,      // after word + position embedding; layer 0
  kProbabilities,  // attention probabilities
  kAttention,      // output of the attention branch
  kFfn,            // output of the feed-forward branch
};

struct DropoutSite {
  kernels::DropoutRate rate;
  uint64_t key = 0;
};

// p in [0, 1).
DropoutSite MakeDropoutSite(double p, int64_t layer, Site site, int64_t seed);

}  // namespace mt::model
