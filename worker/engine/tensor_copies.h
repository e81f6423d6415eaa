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
  // kBeside on GPUs whose tensor ranks have copies, where a shard has kLeastShardRows, else kNever.
  std::optional<model::ShardProducts> shard_products;
  // Fewer rows do not fill a GPU: halves of a product would take longer than what they hide.
  static constexpr int64_t kLeastShardRows = 1024;
};

}  // namespace mt::engine
