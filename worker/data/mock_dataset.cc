// Generates tokens four at a time, one Philox call per four positions.
#include "worker/data/mock_dataset.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/base/ids.h"
#include "kernels/core/random.h"

namespace mt::data {

MockDataset::MockDataset(const Args& args) : args_(args) {
  CHECK(args.num_samples >= 0 && args.seq_length > 0 && args.vocab_size > 0);
  key_ = base::Hash64(fmt::format("data/mock/{}", Name(args.split_name)), args.seed);
  record_ = {.split_name = std::string(Name(args.split_name)),
             .source = "mock",
             .samples_asked = args.num_samples,
             .epochs = 1,
             .separate_last_epoch = false,
             .seed = args.seed,
             .seq_length = args.seq_length,
             .split = "",
             .samples_built = args.num_samples,
             .idx_digest = base::Hash128Hex(fmt::format("mock u^4 1 vocab {}", args.vocab_size))};
}

Status MockDataset::Read(int64_t sample, std::span<int32_t> tokens,
                         std::span<float> weights) const {
  CHECK(sample >= 0 && sample < num_samples()) << "sample " << sample;
  CHECK_EQ(static_cast<int64_t>(tokens.size()), seq_length() + 1);
  CHECK_EQ(static_cast<int64_t>(weights.size()), seq_length());
  const uint64_t number = static_cast<uint64_t>(sample);
  kernels::Philox4 bits{};
  for (size_t i = 0; i < tokens.size(); ++i) {
    // One Philox call yields four tokens: position i takes word i % 4 of counter (i / 4, 0, low,
    // high half of the sample number).
    if (i % 4 == 0) {
      bits = kernels::Philox(key_, {{static_cast<uint32_t>(i / 4), 0, static_cast<uint32_t>(number),
                                     static_cast<uint32_t>(number >> 32)}});
    }
    const double u = bits.word[i % 4] * 0x1p-32;
    const double squared = u * u;
    tokens[i] = static_cast<int32_t>(squared * squared * static_cast<double>(args_.vocab_size));
  }
  std::fill(weights.begin(), weights.end(), 1.0F);
  return OkStatus();
}

}  // namespace mt::data
