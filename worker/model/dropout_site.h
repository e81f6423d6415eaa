// The places in the network where dropout acts. Each has its own stream of random bits, named
// "dropout/<global layer>/<site>" and seeded with training.seed. A mask is therefore a function of
// what it masks and never of the parallel layout (docs/design/numerics.md#dropout; counters:
// kernels/core/random.h).
#pragma once

#include <cstdint>

#include "kernels/core/random.h"

namespace mt::model {

enum class Site : uint8_t {
  kEmbedding,      // sum of word and position embedding; as layer 0
  kProbabilities,  // attention probabilities
  kAttention,      // output of the attention branch
  kFfn,            // output of the feed-forward branch
};

// Rate and Philox key of one site.
struct DropoutSite {
  kernels::DropoutRate rate;
  uint64_t key = 0;
};

// Makes the site of dropout probability p in [0, 1); 0: no dropout.
DropoutSite MakeDropoutSite(double p, int64_t layer, Site site, int64_t seed);

}  // namespace mt::model
