// Interface of numbered samples of S + 1 tokens, which the loader reads: GPT samples from files, or
// random ones. Implementations are immutable.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "common/base/status.h"
#include "worker/data/index_record.h"

namespace mt::data {

// S = seq_length(). Every method is thread-safe.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t num_samples() const = 0;
  virtual int64_t seq_length() const = 0;
  // Reads one sample, 0 <= sample < num_samples() (CHECK). tokens [S + 1]: the input at position t
  // is tokens[t] and its label tokens[t + 1]. weights [S]: 1 where the label counts in the loss, 0
  // where it is padding. May block on disk. kInvalidArgument if a token is outside the vocabulary.
  virtual Status Read(int64_t sample, std::span<int32_t> tokens,
                      std::span<float> weights) const = 0;
  // The id behind which positions of this sample, 0 <= sample < num_samples(), begin again at 0;
  // empty: they count through the sample.
  virtual std::optional<int32_t> PositionsRestartBehind(int64_t sample) const;
  // Everything that determines the order of the samples; saved in checkpoints.
  virtual const IndexRecord& record() const = 0;
  // How many samples of each member of a blend are among the first `samples`; empty: no blend, or
  // its draw cannot be read any more, of which Read tells.
  virtual std::vector<int64_t> ConsumedByMember(int64_t samples) const;
};

inline std::optional<int32_t> Dataset::PositionsRestartBehind(int64_t /*sample*/) const {
  return std::nullopt;
}
inline std::vector<int64_t> Dataset::ConsumedByMember(int64_t /*samples*/) const { return {}; }

}  // namespace mt::data
