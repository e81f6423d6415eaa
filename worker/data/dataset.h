// Samples of S + 1 tokens by number: what the loader reads, whatever makes them.
#pragma once

#include <cstdint>
#include <span>

#include "common/base/status.h"
#include "worker/data/index_record.h"

namespace mt::data {

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t num_samples() const = 0;
  virtual int64_t seq_length() const = 0;
  // Writes sample `sample` (0 <= sample < num_samples(), CHECK): tokens [S + 1], where input t is
  // tokens[t] and its label tokens[t + 1]; weights [S], 1 where the label counts and 0 where it is
  // padding. Thread-safe, may block on disk.
  virtual Status Read(int64_t sample, std::span<int32_t> tokens,
                      std::span<float> weights) const = 0;
  virtual const IndexRecord& record() const = 0;
};

}  // namespace mt::data
