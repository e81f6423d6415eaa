// What tensor ranks do where their GPUs reach each other (worker/comm/copies).
#pragma once

#include <cstdint>
#include <optional>

#include "worker/model/gpt_config.h"

namespace mt::engine {

struct TensorCopies {
  // The routes of collectives inside layers are raced when the engine is made, unless the job is to
  // be deterministic (training.deterministic); else all go by copies. Not for devices of a world
  // whose order is drawn.
  bool race = false;
  // Forward's products (GptConfig::shard_products), whatever the device and its groups; nullopt:
  // kBeside on GPUs whose tensor ranks have copies, where PaysFor a shard's rows, else kNever.
  std::optional<model::ShardProducts> shard_products;
  // Fewer rows do not fill a GPU: halves of a product would take longer than what they hide. Of
  // other rows than multiples of kRowsUnit shards would begin between 16-byte vectors, where
  // products are slow, and others than those that were planned.
  static constexpr int64_t kLeastShardRows = 1024, kRowsUnit = 8;
  static constexpr bool PaysFor(int64_t rows) {
    return rows >= kLeastShardRows && rows % kRowsUnit == 0;
  }
};

}  // namespace mt::engine
