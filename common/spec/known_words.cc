// Megatron's arguments follow by reflection; the rest is a table.
#include "common/spec/known_words.h"

#include <algorithm>
#include <cctype>
#include <utility>
#include <vector>

#include "common/spec/fault.h"
#include "common/spec/rules.h"
#include "megatrain/v1/job.pb.h"
#include "megatrain/v1/options.pb.h"

namespace mt::spec {
namespace {

using Pair = std::pair<std::string_view, std::string_view>;

constexpr Pair kFields[] = {
    {"n_layer", "model.layers"},
    {"n_layers", "model.layers"},
    {"num_hidden_layers", "model.layers"},
    {"depth", "model.layers"},
    {"n_head", "model.heads"},
    {"n_heads", "model.heads"},
    {"num_heads", "model.heads"},
    {"n_kv_head", "model.kv_heads"},
    {"n_kv_heads", "model.kv_heads"},
    {"num_key_value_heads", "model.kv_heads"},
    {"n_embd", "model.hidden_size"},
    {"d_model", "model.hidden_size"},
    {"dim", "model.hidden_size"},
    {"width", "model.hidden_size"},
    {"n_inner", "model.ffn_size"},
    {"d_ff", "model.ffn_size"},
    {"intermediate_size", "model.ffn_size"},
    {"block_size", "model.seq_length"},
    {"context_length", "model.seq_length"},
    {"n_ctx", "model.seq_length"},
    {"n_positions", "model.max_positions"},
    {"max_seq_len", "model.seq_length"},
    {"seq_len", "model.seq_length"},
    {"dropout", "model.hidden_dropout"},
    {"resid_pdrop", "model.hidden_dropout"},
    {"attn_pdrop", "model.attention_dropout"},
    {"rope_theta", "model.rope.base"},
    {"rms_norm_eps", "model.norm_eps"},
    {"layer_norm_epsilon", "model.norm_eps"},
    {"hidden_act", "model.activation"},
    {"activation_function", "model.activation"},
    {"swiglu", "model.activation"},
    {"squared_relu", "model.activation"},
    {"tie_word_embeddings", "model.tie_embeddings"},
    {"sliding_window", "model.window"},
    {"initializer_range", "model.init_std"},
    {"learning_rate", "optimizer.lr"},
    {"max_lr", "optimizer.lr"},
    {"min_learning_rate", "optimizer.min_lr"},
    {"lr_scheduler", "optimizer.decay"},
    {"lr_scheduler_type", "optimizer.decay"},
    {"schedule", "optimizer.decay"},
    {"warmup_iters", "optimizer.warmup"},
    {"warmup_steps", "optimizer.warmup"},
    {"num_warmup_steps", "optimizer.warmup"},
    {"warmup_ratio", "optimizer.warmup"},
    {"lr_warmup_samples", "optimizer.warmup"},
    {"lr_warmup_fraction", "optimizer.warmup"},
    {"adam_epsilon", "optimizer.eps"},
    {"adam_eps", "optimizer.eps"},
    {"grad_clip", "optimizer.clip_grad"},
    {"max_grad_norm", "optimizer.clip_grad"},
    {"max_iters", "training.train_iters"},
    {"max_steps", "training.train_iters"},
    {"steps", "training.train_iters"},
    {"iters", "training.train_iters"},
    {"iterations", "training.train_iters"},
    {"num_steps", "training.train_iters"},
    {"batch_size", "training.micro_batch_size"},
    {"train_batch_size", "training.global_batch_size"},
    {"per_device_train_batch_size", "training.micro_batch_size"},
    {"gradient_accumulation_steps", "training.global_batch_size"},
    {"rampup_batch_size", "training.batch_ramp"},
    {"dtype", "training.precision"},
    {"torch_dtype", "training.precision"},
    {"bf16", "training.precision"},
    {"fp16", "training.precision"},
    {"random_seed", "training.seed"},
    {"eval_iters", "training.eval.iters"},
    {"eval_steps", "training.eval.every_iters"},
    {"logging_steps", "training.log_every"},
    {"gradient_checkpointing", "training.recompute.mode"},
    {"tp", "parallel.tensor"},
    {"tp_size", "parallel.tensor"},
    {"tensor_parallel", "parallel.tensor"},
    {"pp", "parallel.pipeline"},
    {"pp_size", "parallel.pipeline"},
    {"pipeline_parallel", "parallel.pipeline"},
    {"dp", "parallel.data"},
    {"dp_size", "parallel.data"},
    {"data_parallel", "parallel.data"},
    {"data_parallel_size", "parallel.data"},
    {"cp", "parallel.context"},
    {"zero", "parallel.zero_stage"},
    {"dataset", "data.path"},
    {"vocab", "model.vocab_size"},
    {"n_vocab", "model.vocab_size"},
    {"save_steps", "checkpoint.every_iters"},
    {"save_every", "checkpoint.every_iters"},
    {"save_dir", "checkpoint.directory"},
    {"out_dir", "checkpoint.directory"},
    {"output_dir", "checkpoint.directory"},
    {"save_total_limit", "checkpoint.keep_last"},
    {"gpus", "placement.slots"},
    {"node_selector", "placement.node_selector"},
    {"restart_policy", "resilience.max_restarts"},
    {"active_deadline_seconds", "resilience.deadline"},
};

constexpr Pair kValues[] = {
    {"bfloat16", "bf16"},
    {"float16", "fp16"},
    {"half", "fp16"},
    {"float32", "fp32"},
    {"float", "fp32"},
    {"single", "fp32"},
    {"float64", "fp64"},
    {"double", "fp64"},
    {"silu", "swiglu"},
    {"swish", "swiglu"},
    {"gelu_new", "gelu"},
    {"gelu_fast", "gelu"},
    {"gelu_tanh", "gelu"},
    {"gelu_exact", "gelu_erf"},
    {"squared_relu", "relu2"},
    {"layer_norm", "layernorm"},
    {"rms_norm", "rmsnorm"},
    {"learned_absolute", "learned"},
    {"absolute", "learned"},
    {"rotary", "rope"},
    {"adam", "adamw"},
    {"inverse_square_root", "inverse_sqrt"},
    {"cuda", "gpu"},
    {"nvidia", "gpu"},
    {"host", "cpu"},
    {"selective_recompute", "selective"},
    {"bytelevel", "byte"},
    {"nulltokenizer", "null"},
    {"gpt2bpetokenizer", "gpt2_bpe"},
    {"huggingfacetokenizer", "hf"},
    {"sentencepiecetokenizer", "sentencepiece"},
    {"gptsentencepiecetokenizer", "sentencepiece"},
    {"llama2tokenizer", "sentencepiece"},
};

// "--Num-Layers" as "num_layers".
std::string Plain(std::string_view word) {
  while (word.starts_with('-')) word.remove_prefix(1);
  std::string out(word);
  std::ranges::transform(out, out.begin(), [](unsigned char c) {
    return c == '-' ? '_' : static_cast<char>(std::tolower(c));
  });
  return out;
}

}  // namespace

std::string FieldCalled(std::string_view word) {
  const std::string plain = Plain(word);
  if (plain.empty()) return "";
  for (const auto& [theirs, ours] : kFields) {
    if (theirs == plain) return std::string(ours);
  }
  for (const FieldAt& at : AllFields(*megatrain::v1::JobSpec::descriptor(), true)) {
    const std::string& flag = RuleOf(*at.field).flag();
    if (!flag.empty() && Plain(flag) == plain) return at.path;
  }
  return "";
}

std::string FieldNamed(std::string_view name) {
  const std::vector<FieldAt> fields = AllFields(*megatrain::v1::JobSpec::descriptor(), true);
  const auto named = [&](std::string_view wanted) {
    const auto at = std::ranges::find_if(
        fields, [&](const FieldAt& field) { return field.field->name() == wanted; });
    return at == fields.end() ? std::string() : at->path;
  };
  std::string path = named(name);
  if (!path.empty()) return path;
  std::vector<std::string> names;
  names.reserve(fields.size());
  for (const FieldAt& field : fields) names.push_back(field.field->name());
  const std::string nearest = Nearest(name, names);
  return nearest.empty() ? "" : named(nearest);
}

std::string ValueCalled(std::string_view word) {
  const std::string plain = Plain(word);
  for (const auto& [theirs, ours] : kValues) {
    if (theirs == plain) return std::string(ours);
  }
  return "";
}

}  // namespace mt::spec
