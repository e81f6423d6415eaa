// One table: groups of fields, and why a job leaves them without effect. A knob that is added gets
// a row here (CONTRIBUTING.md).
#include "common/spec/field_effects.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include "common/spec/derived.h"
#include "common/spec/rules.h"
#include "common/spec/validate.h"
#include "common/spec/values.h"
#include "megatrain/v1/job.pb.h"

namespace mt::spec {
namespace {

namespace v1 = megatrain::v1;
using Field = pb::FieldDescriptor;

// --- Why a field does not act: "" where it does. The text follows "has no effect, since".
using Why = std::string (*)(const v1::JobSpec& job);

std::string If(bool idle, std::string_view why) { return std::string(idle ? why : ""); }

std::string OnCpu(const v1::JobSpec& job, std::string_view what) {
  return job.placement().device() == v1::Placement::DEVICE_CPU
             ? fmt::format("the job runs on CPU slots, {}; leave it out", what)
             : "";
}

std::string Always(const v1::JobSpec& /*job*/) { return ""; }

std::string WithoutLearnedPositions(const v1::JobSpec& job) {
  return If(job.model().position() != v1::Model::POSITION_LEARNED,
            "only model.position learned has a table of positions; leave it out");
}
std::string WindowOfAll(const v1::JobSpec& job) {
  if (job.model().window() < job.model().seq_length()) return "";
  return fmt::format(
      "every token sees the whole sequence of model.seq_length {}; give less, or "
      "leave it out",
      job.model().seq_length());
}
std::string WeightsAreLoaded(const v1::JobSpec& job) {
  const v1::Checkpoint& checkpoint = job.checkpoint();
  if (!checkpoint.has_load() && !checkpoint.has_load_tag()) return "";
  return fmt::format("checkpoint.{} names the weights to begin with; leave it out",
                     checkpoint.has_load() ? "load" : "load_tag");
}

std::string NothingIsDivided(const v1::JobSpec& job) {
  if (job.data().path_size() > 0) return "";
  return fmt::format("it divides data.path, and the job has {}; leave it out",
                     job.data().mock() ? "data.mock" : "data.train");
}
std::string IsMock(const v1::JobSpec& job) {
  return If(job.data().mock(), "data.mock reads no files; leave it out");
}
std::string NothingRestarts(const v1::JobSpec& job) {
  if (job.model().position() == v1::Model::POSITION_ALIBI)
    return "model.position alibi counts distances, which do not restart; leave it out";
  if (job.model().position() == v1::Model::POSITION_NONE)
    return "model.position none has no positions; leave it out";
  return IsMock(job);
}
std::string WithoutEvaluation(const v1::JobSpec& job) {
  return If(job.training().eval().every_iters() == 0,
            "training.eval.every_iters is 0; give it, or leave this out");
}
std::string WithoutWindows(const v1::JobSpec& job) {
  std::string why = WithoutEvaluation(job);
  if (!why.empty()) return why;
  return If(job.training().eval().iters() == 0,
            "training.eval.iters is 0, which takes the whole validation split; leave it out");
}
std::string WithoutPrompts(const v1::JobSpec& job) {
  return If(job.training().eval().prompts_size() == 0,
            "training.eval.prompts is empty; give it, or leave this out");
}
std::string NeverTested(const v1::JobSpec& /*job*/) {
  return "training evaluates on the validation split alone; leave it out";
}

std::string EndsBefore(const v1::JobSpec& job, int64_t step) {
  const int64_t steps = TotalIterations(job);
  if (step < steps) return "";
  return fmt::format("the run ends at step {}; give less, or leave it out", steps);
}
std::string ExitAtIter(const v1::JobSpec& job) {
  return EndsBefore(job, job.training().exit_at_iter());
}
std::string ExitInterval(const v1::JobSpec& job) {
  return EndsBefore(job, job.training().exit_interval());
}
std::string AlwaysDeterministic(const v1::JobSpec& job) {
  return OnCpu(job, "where the same run twice is always equal to the last bit");
}
std::string WithoutGraphs(const v1::JobSpec& job) {
  return OnCpu(job, "and a GPU alone records graphs");
}

std::string OneStage(const v1::JobSpec& job) {
  return If(job.parallel().pipeline() == 1, "parallel.pipeline is 1; leave it out");
}
std::string OneReplica(const v1::JobSpec& job) {
  return If(job.parallel().data() == 1, "parallel.data is 1; leave it out");
}
std::string OneRank(const v1::JobSpec& job) {
  return If(WorldSize(job) == 1, "the job has one rank; leave it out");
}
std::string ComparesNothing(const v1::JobSpec& job) {
  std::string cpu = OnCpu(job, "which always compare their calls");
  return cpu.empty() ? OneRank(job) : cpu;
}
std::string WithoutZero(const v1::JobSpec& job) {
  std::string one = OneReplica(job);
  if (!one.empty()) return one;
  const v1::Parallel& parallel = job.parallel();
  return If(parallel.has_zero_stage() && parallel.zero_stage() == 0,
            "parallel.zero_stage is 0; set it to 1, or leave this out");
}

std::string ConstantRate(const v1::JobSpec& job) {
  return If(job.optimizer().decay() == v1::Optimizer::DECAY_CONSTANT,
            "optimizer.decay is constant; leave it out, or choose another decay");
}
std::string OtherThanWsd(const v1::JobSpec& job) {
  return If(job.optimizer().decay() != v1::Optimizer::DECAY_WSD,
            "optimizer.decay is not wsd; leave it out, or set decay to wsd");
}
std::string WeightDecayStays(const v1::JobSpec& job) {
  const v1::Optimizer& optimizer = job.optimizer();
  return If(optimizer.weight_decay_end() == optimizer.weight_decay(),
            "weight decay ends at optimizer.weight_decay; give optimizer.weight_decay_end, or "
            "leave this out");
}
std::string OtherThanAdamW(const v1::JobSpec& job) {
  return If(job.optimizer().type() != v1::Optimizer::TYPE_ADAMW,
            "optimizer.type is sgd; it is of adamw, leave it out");
}
std::string OtherThanSgd(const v1::JobSpec& job) {
  return If(job.optimizer().type() != v1::Optimizer::TYPE_SGD,
            "optimizer.type is adamw; it is of sgd, leave it out");
}

std::string WithoutDirectory(const v1::JobSpec& job) {
  return If(job.checkpoint().directory() == "none",
            "checkpoint.directory is none; give a directory, or leave this out");
}
std::string WithoutPeriodicSaves(const v1::JobSpec& job) {
  std::string none = WithoutDirectory(job);
  if (!none.empty()) return none;
  const v1::Checkpoint& checkpoint = job.checkpoint();
  return If(checkpoint.every_iters() == 0 && !checkpoint.has_every(),
            "the job saves at its end alone; give checkpoint.every_iters, or leave this out");
}
std::string NobodyIsWaitedFor(const v1::JobSpec& job) {
  std::string one = OneRank(job);
  return one.empty() ? WithoutDirectory(job) : one;
}

std::string NothingIsDrawn(const v1::JobSpec& job) {
  return If(job.generate().temperature() == 0,
            "generate.temperature is 0, which takes the likeliest token; leave it out");
}

struct Row {
  std::string_view path;
  Why why;
};

// Every field that is built. `Always` stands, too, for those that check_*.cc refuses where they
// have no meaning.
constexpr auto kRows = std::to_array<Row>({
    {"name", Always},
    {"namespace", Always},
    {"labels", Always},
    {"kind", Always},
    {"priority", Always},
    {"model.preset", Always},
    {"model.layers", Always},
    {"model.hidden_size", Always},
    {"model.heads", Always},
    {"model.kv_heads", Always},
    {"model.head_dim", Always},
    {"model.ffn_size", Always},
    {"model.vocab_size", Always},
    {"model.vocab_divisible_by", Always},
    {"model.seq_length", Always},
    {"model.max_positions", WithoutLearnedPositions},
    {"model.position", Always},
    {"model.rope.base", Always},
    {"model.rope.percent", Always},
    {"model.rope.scaling.type", Always},
    {"model.rope.scaling.factor", Always},
    {"model.rope.scaling.low_freq_factor", Always},
    {"model.rope.scaling.high_freq_factor", Always},
    {"model.rope.scaling.original_positions", Always},
    {"model.norm", Always},
    {"model.norm_eps", Always},
    {"model.norm_one_plus", Always},
    {"model.activation", Always},
    {"model.bias", Always},
    {"model.qkv_bias", Always},
    {"model.qk_norm", Always},
    {"model.tie_embeddings", Always},
    {"model.parallel_residual", Always},
    {"model.window", WindowOfAll},
    {"model.hidden_dropout", Always},
    {"model.attention_dropout", Always},
    {"model.init_std", WeightsAreLoaded},
    {"model.scaled_init", WeightsAreLoaded},
    {"data.path", Always},
    {"data.split", NothingIsDivided},
    {"data.split_by", NothingIsDivided},
    {"data.train", Always},
    {"data.valid", WithoutEvaluation},
    {"data.test", NeverTested},
    {"data.mock", Always},
    {"data.tokenizer.type", Always},
    {"data.tokenizer.file", Always},
    {"data.tokenizer.vocab", Always},
    {"data.tokenizer.merges", Always},
    {"data.seed", Always},
    {"data.cache", IsMock},
    {"data.allow_changed", IsMock},
    {"data.allow_new_blend", IsMock},
    {"data.eod_mask_loss", IsMock},
    {"data.reset_positions", NothingRestarts},
    {"data.loader_threads", IsMock},
    {"data.prefetch", Always},
    {"parallel.tensor", Always},
    {"parallel.pipeline", Always},
    {"parallel.data", Always},
    {"parallel.sequence_parallel", Always},
    {"parallel.virtual_stages", Always},
    {"parallel.schedule", OneStage},
    {"parallel.microbatch_group", Always},
    {"parallel.layout", OneStage},
    {"parallel.zero_stage", OneReplica},
    {"parallel.bucket_size", OneRank},
    {"parallel.overlap.grad_reduce", OneReplica},
    {"parallel.overlap.param_gather", WithoutZero},
    {"parallel.overlap.pipeline", OneStage},
    {"training.train_iters", Always},
    {"training.train_samples", Always},
    {"training.train_tokens", Always},
    {"training.micro_batch_size", Always},
    {"training.global_batch_size", Always},
    {"training.batch_ramp", Always},
    {"training.precision", Always},
    {"training.loss_scale.mode", Always},
    {"training.loss_scale.value", Always},
    {"training.loss_scale.initial", Always},
    {"training.loss_scale.window", Always},
    {"training.loss_scale.hysteresis", Always},
    {"training.loss_scale.min", Always},
    {"training.seed", Always},
    {"training.recompute.mode", Always},
    {"training.recompute.method", Always},
    {"training.recompute.layers", Always},
    {"training.eval.every_iters", Always},
    {"training.eval.iters", WithoutEvaluation},
    {"training.eval.windows", WithoutWindows},
    {"training.eval.prompts", WithoutEvaluation},
    {"training.eval.prompt_tokens", WithoutPrompts},
    {"training.eval.prompt_temperature", WithoutPrompts},
    {"training.eval.decode_tokens", Always},
    {"training.deterministic", AlwaysDeterministic},
    {"training.exit_after", Always},
    {"training.exit_at_iter", ExitAtIter},
    {"training.nonfinite", Always},
    {"training.stop_after_skipped", Always},
    {"training.log_every", Always},
    {"training.recordings", WithoutGraphs},
    {"training.debug_collectives", ComparesNothing},
    {"training.exit_interval", ExitInterval},
    {"optimizer.type", Always},
    {"optimizer.lr", Always},
    {"optimizer.min_lr", ConstantRate},
    {"optimizer.decay", Always},
    {"optimizer.warmup", Always},
    {"optimizer.decay_over", ConstantRate},
    {"optimizer.warmup_init", Always},
    {"optimizer.wsd.over", Always},
    {"optimizer.wsd.style", OtherThanWsd},
    {"optimizer.weight_decay", Always},
    {"optimizer.weight_decay_end", Always},
    {"optimizer.weight_decay_style", WeightDecayStays},
    {"optimizer.beta1", OtherThanAdamW},
    {"optimizer.beta2", OtherThanAdamW},
    {"optimizer.eps", OtherThanAdamW},
    {"optimizer.momentum", OtherThanSgd},
    {"optimizer.clip_grad", Always},
    {"checkpoint.directory", Always},
    {"checkpoint.every_iters", Always},
    {"checkpoint.every", Always},
    {"checkpoint.keep_last", WithoutDirectory},
    {"checkpoint.keep_every", WithoutPeriodicSaves},
    {"checkpoint.keep_best", Always},
    {"checkpoint.async_save", WithoutDirectory},
    {"checkpoint.at_end", WithoutDirectory},
    {"checkpoint.strict", Always},
    {"checkpoint.load", Always},
    {"checkpoint.load_kind", Always},
    {"checkpoint.fresh", WithoutDirectory},
    {"checkpoint.second", Always},
    {"checkpoint.load_tag", Always},
    {"placement.device", Always},
    {"placement.slots", Always},
    {"placement.node_selector", Always},
    {"placement.exclusive", Always},
    {"placement.threads_per_rank", Always},
    {"resilience.on_agent_exit", Always},
    {"resilience.max_restarts.user", Always},
    {"resilience.max_restarts.hang", Always},
    {"resilience.max_restarts.infra_per_hour", Always},
    {"resilience.max_restarts.no_progress", Always},
    {"resilience.max_restarts.storage", Always},
    {"resilience.timeouts.comm_init", Always},
    {"resilience.timeouts.load", Always},
    {"resilience.timeouts.checkpoint", NobodyIsWaitedFor},
    {"resilience.timeouts.collective", OneRank},
    {"resilience.deadline", Always},
    {"telemetry.log_format", Always},
    {"telemetry.tensorboard", Always},
    {"bench.warmup", Always},
    {"bench.steps", Always},
    {"bench.kernels", Always},
    {"read.checkpoint", Always},
    {"read.step", Always},
    {"read.tag", Always},
    {"read.precision", Always},
    {"read.output", Always},
    {"generate.prompts", Always},
    {"generate.tokens", Always},
    {"generate.samples", Always},
    {"generate.temperature", Always},
    {"generate.top_k", Always},
    {"generate.top_p", Always},
    {"generate.repetition_penalty", Always},
    {"generate.stops", Always},
    {"generate.seed", NothingIsDrawn},
    {"generate.logprobs", Always},
    {"eval.file", Always},
});

// The message that holds the field of this path.
pb::Message* Holder(std::string_view path, pb::Message* message) {
  for (;;) {
    const size_t dot = path.find('.');
    if (dot == std::string_view::npos) return message;
    const Field& section =
        *message->GetDescriptor()->FindFieldByName(std::string(path.substr(0, dot)));
    message = message->GetReflection()->MutableMessage(message, &section);
    path.remove_prefix(dot + 1);
  }
}

// Whether the job would have another value without the field: a default that was written out is
// not spoken of, nor what is derived from other fields.
bool IsOwnValue(const v1::JobSpec& job, const std::string& path, const pb::Message& holder,
                const Field& field) {
  if (!field.is_repeated() && TextOf(holder, field) == DefaultText(field)) return false;
  v1::JobSpec without = job;
  pb::Message* const same = Holder(path, &without);
  same->GetReflection()->ClearField(same, &field);
  if (!CompleteJob({.stored = true}, &without).empty()) return false;
  if (!IsSet(*same, field)) return true;
  return field.is_repeated() || TextOf(*same, field) != TextOf(holder, field);
}

// Megatron-LM turns one channel more than the share gives where that is odd, with frequencies for
// the odd number; checkpoints from here turn one less.
void NoteOddRotation(const v1::JobSpec& job, std::vector<FieldNote>* notes) {
  const v1::Model& model = job.model();
  if (model.position() != v1::Model::POSITION_ROPE) return;
  const auto head = static_cast<double>(HeadDim(model));
  const auto channels = static_cast<int64_t>(head * model.rope().percent());
  if (channels % 2 == 0) return;
  const auto share = [head](int64_t even) {
    double percent = static_cast<double>(even) / head;
    while (static_cast<int64_t>(head * percent) < even)
      percent = std::nextafter(percent, std::numeric_limits<double>::infinity());
    return percent;
  };
  notes->push_back(
      {.path = "model.rope.percent",
       .text =
           fmt::format("{} of head_dim {} are {} channels, of which {} are turned, "
                       "in pairs; Megatron-LM turns {}. Nearest: {} ({} channels) "
                       "or {} ({} channels)",
                       model.rope().percent(), HeadDim(model), channels, channels - 1, channels + 1,
                       share(channels - 1), channels - 1, share(channels + 1), channels + 1)});
}

}  // namespace

std::vector<FieldNote> FieldNotes(const v1::JobSpec& job) {
  static const std::map<std::string_view, Why> rows = [] {
    std::map<std::string_view, Why> whys;
    for (const Row& row : kRows) whys.emplace(row.path, row.why);
    return whys;
  }();
  std::vector<FieldNote> notes;
  ForEachSetField(
      job, "", [&](const std::string& path, const pb::Message& holder, const Field& field) {
        const auto row = rows.find(path);
        const std::string why = row == rows.end() ? "" : row->second(job);
        if (why.empty() || !IsOwnValue(job, path, holder, field)) return;
        const std::string value = field.is_repeated() ? "" : TextOf(holder, field) + " ";
        notes.push_back({.path = path, .text = value + "has no effect, since " + why});
      });
  NoteOddRotation(job, &notes);
  return notes;
}

std::vector<std::string> NoteLines(const std::vector<FieldNote>& notes) {
  std::vector<std::string> lines;
  lines.reserve(notes.size());
  for (const FieldNote& note : notes) lines.push_back(note.path + ": " + note.text);
  return lines;
}

int NumRows(std::string_view path) {
  return static_cast<int>(std::ranges::count(kRows, path, &Row::path));
}

}  // namespace mt::spec
