// The scaled initialisation of GPT-2 (Radford et al. 2019, section 2.3), and the checks that a
// config built by hand would violate.
#include "worker/model/gpt_config.h"

#include <cmath>

#include "common/base/check.h"

namespace mt::model {

double GptConfig::output_init_std() const {
  return scaled_init ? init_std / std::sqrt(2.0 * static_cast<double>(layers)) : init_std;
}

void CheckConfig(const GptConfig& c) {
  CHECK(c.layers > 0 && c.hidden > 0 && c.heads > 0 && c.head_dim > 0 && c.ffn > 0)
      << c.layers << " layers, hidden " << c.hidden << ", " << c.heads << " heads of " << c.head_dim
      << ", ffn " << c.ffn;
  CHECK_GE(c.stored_head(), c.head_dim);
  CHECK_GT(c.vocab, 0);
  CHECK_GE(c.padded_vocab, c.vocab);
  CHECK(c.seq > 0 && c.micro_batch > 0) << c.seq << " tokens x " << c.micro_batch << " samples";
  CHECK_GE(c.max_positions, c.seq);
  CHECK_GT(c.norm_eps, 0);
  CHECK(c.hidden_dropout >= 0 && c.hidden_dropout < 1) << c.hidden_dropout;
  CHECK(c.attention_dropout >= 0 && c.attention_dropout < 1) << c.attention_dropout;
  CHECK_GE(c.head_chunk_tokens, 0);
  CHECK(c.kv_heads > 0 && c.heads % c.kv_heads == 0) << c.heads << " heads, " << c.kv_heads;
  CHECK(!c.reset_positions || c.position == PositionKind::kLearned ||
        c.position == PositionKind::kRope);
  if (c.position == PositionKind::kRope) {
    CHECK_EQ(c.rope.head_dim, c.head_dim);
    CHECK_GE(kernels::RotatedChannels(c.rope), 2) << c.rope.percent << " of " << c.head_dim;
  }
  CHECK(c.window >= 0 && c.recompute.layers > 0);
  const TensorShard& shard = c.shard;
  CHECK(shard.size > 0 && shard.rank >= 0 && shard.rank < shard.size);
  CHECK(c.kv_heads % shard.size == 0 && c.ffn % shard.size == 0 && c.padded_vocab % shard.size == 0)
      << c.kv_heads << " key/value heads, ffn " << c.ffn << ", vocabulary " << c.padded_vocab
      << " over " << shard.size << " ranks";
  CHECK(!shard.sequence_parallel || c.seq % shard.size == 0)
      << c.seq << " positions over " << shard.size << " ranks";
}

}  // namespace mt::model
