// What is held against each other when data sets are opened and both sides are known.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "worker/data/indexed_dataset.h"
#include "worker/data/split.h"

namespace mt::data {

// Reads 64 blocks of at most 4 KiB, evenly spread over the sequences of the range. kInvalidArgument
// for an id outside of the vocabulary, as IndexedDataset::Read: a run would meet it in some step.
Status CheckSampledIds(const IndexedDataset& data, SequenceRange range, int64_t vocab_size);

using DataSets = std::vector<std::shared_ptr<const IndexedDataset>>;
// Warns of each data set of `held_out` that is one of `train`, by the digests of both files: its
// loss says nothing about other text. `split` is the name of what is held out.
void SayShared(const DataSets& train, const DataSets& held_out, std::string_view split);

}  // namespace mt::data
