// Nothing is ignored: each field of a job, changed by itself in ten jobs, changes what a rank is
// built with, or validation answers (a refusal, or that it has no effect). The fields come from
// job.proto by reflection, so a new one is held to it as well.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/base/files.h"
#include "common/layout/group_axes.h"
#include "common/spec/course.h"
#include "common/spec/derived.h"
#include "common/spec/field_effects.h"
#include "common/spec/field_words.h"
#include "common/spec/parse.h"
#include "common/spec/print.h"
#include "common/spec/validate.h"
#include "megatrain/v1/job.pb.h"
#include "tests/sanitized.h"
#include "tests/worker/train/train_rig.h"
#include "worker/engine/engine_config.h"
#include "worker/train/run_data.h"
#include "worker/train/run_settings.h"

namespace mt::train {
namespace {

using megatrain::v1::JobSpec;
using Texts = std::vector<std::string>;

// Values one after the other; enums as their numbers.
class Facts {
 public:
  template <class... Values>
  void Put(const Values&... values) {
    (PutOne(values), ...);
  }
  const std::string& text() const { return text_; }

 private:
  template <class Value>
  void PutOne(const Value& value) {
    if constexpr (std::is_enum_v<Value>) {
      text_ += fmt::format("{} ", static_cast<int64_t>(value));
    } else {
      text_ += fmt::format("{} ", value);
    }
  }
  std::string text_;
};

void PutModel(const model::GptConfig& c, Facts* out) {
  out->Put(c.layers, c.hidden, c.heads, c.kv_heads, c.head_dim, c.stored_head_dim, c.ffn, c.vocab,
           c.padded_vocab, c.seq, c.micro_batch, c.max_positions, c.position, c.reset_positions);
  out->Put(c.rope.percent, c.rope.base, c.rope.scaling.kind, c.rope.scaling.factor,
           c.rope.scaling.low_freq_factor, c.rope.scaling.high_freq_factor,
           c.rope.scaling.original_positions);
  out->Put(c.norm, c.norm_one_plus, c.norm_eps, c.activation, c.bias, c.qkv_bias, c.qk_norm,
           c.tie_embeddings, c.parallel_residual, c.window, c.hidden_dropout, c.attention_dropout,
           c.init_std, c.scaled_init, c.dtype, c.seed, c.recompute.mode, c.recompute.method,
           c.recompute.layers, c.deterministic, c.shard.rank, c.shard.size,
           c.shard.sequence_parallel);
}

void PutOptimizer(const optim::OptimizerConfig& o, const kernels::StepConstants& c, Facts* out) {
  out->Put(o.kind, o.beta1, o.beta2, o.eps, o.momentum);
  out->Put(c.max_lr, c.min_lr, c.warmup_init, c.decay, c.warmup_samples, c.decay_samples,
           c.wsd_style, c.wsd_samples, c.weight_decay, c.weight_decay_end, c.weight_decay_kind,
           c.weight_decay_samples, c.beta1, c.beta2, c.clip_grad, c.batch_samples,
           c.nominal_tokens);
  out->Put(c.loss_scale.kind, c.loss_scale.initial, c.loss_scale.min, c.loss_scale.window,
           c.loss_scale.hysteresis);
}

// What engine::EnginePlan is made of, on every rank.
void PutEngines(const JobSpec& job, Facts* out) {
  const layout::Mesh mesh = layout::Mesh::Create(spec::MeshSizesOf(job)).value();
  out->Put(mesh.world_size());
  for (int rank = 0; rank < mesh.world_size(); ++rank) {
    const layout::GroupAxes axes(mesh, rank, job.model().tie_embeddings());
    const engine::EngineConfig c = engine::EngineConfigFromJob(job, axes);
    PutModel(c.model, out);
    PutOptimizer(c.optimizer, c.constants, out);
    for (const layout::ModelChunk& chunk : c.chunks)
      out->Put(chunk.first_layer, chunk.num_layers, chunk.has_embedding, chunk.has_head);
    for (const spec::BatchPhase& phase : c.ramp.phases()) out->Put(phase.from_samples, phase.batch);
    out->Put(c.stage, c.schedule.kind, c.schedule.stages, c.schedule.microbatches,
             c.schedule.chunks, c.schedule.group, c.samples_per_round, c.share.zero_stage,
             c.share.dp_rank, c.share.moments, c.bucket_bytes, c.overlap_reduce, c.overlap_gather,
             c.recordings, c.snapshot);
  }
}

// What RunSetup, StepLoop and Checkpointer take from the job without a struct between.
void PutRun(const JobSpec& job, Facts* out) {
  const auto& training = job.training();
  out->Put(spec::CourseOf(job).steps, spec::CourseOf(job).samples, Pack(SettingsOf(job)),
           training.exit_at_iter(), training.exit_interval(), training.exit_after(),
           training.nonfinite(), training.stop_after_skipped(), job.data().prefetch(),
           job.data().loader_threads(), job.data().allow_changed(), job.data().allow_new_blend());
  // TextWriter's.
  const auto& eval = training.eval();
  out->Put(fmt::format("{}", fmt::join(eval.prompts(), "|")), eval.prompt_tokens(),
           eval.prompt_temperature(), eval.decode_tokens());
  const auto& checkpoint = job.checkpoint();
  out->Put(spec::CheckpointDirectory(job), checkpoint.async_save(), checkpoint.at_end(),
           checkpoint.strict(), checkpoint.second(), checkpoint.load(), checkpoint.load_tag(),
           checkpoint.load_kind(), checkpoint.fresh());
  out->Put(job.kind(), job.bench().warmup(), job.bench().kernels(),
           job.placement().threads_per_rank(), job.parallel().overlap().pipeline(),
           training.debug_collectives());
  out->Put(job.resilience().timeouts().comm_init(), spec::LoadTimeout(job).count(),
           spec::SaveTimeout(job).count(), spec::CollectiveTimeout(job).count());
}

struct Base {
  const char* name;
  Texts overrides;
  bool gpu = false;
};

std::vector<Base> Bases() {
  const std::string pairs = "data={train: [text], valid: [other], tokenizer: {type: byte}}";
  const std::string mock = "data={mock: true, tokenizer: {type: byte}}";
  const std::string wsd =
      "optimizer={lr: 1e-3, min_lr: 1e-4, decay: wsd, warmup: 10%, wsd: {over: 20%}, "
      "weight_decay: 0.1, weight_decay_end: 0.2, weight_decay_style: linear}";
  return {
      {"plain",
       {"training.eval={every_iters: 5, iters: 2, prompts: [a]}", "checkpoint.every_iters=5",
        "checkpoint.keep_every=10"}},
      {"sgd",
       {mock, "optimizer={type: sgd, lr: 1e-3, decay: constant, weight_decay: 0.1}",
        "training.recompute.mode=full"}},
      {"wsd",
       {"training.train_iters=null", "training.train_tokens=2560", "model.position=rope",
        "model.rope.scaling={type: llama3, factor: 8}", "model.activation=swiglu",
        "model.ffn_size=32", wsd}},
      {"fp16", {"training.precision=fp16", "checkpoint.every=5m"}},
      {"cube",
       {"parallel={tensor: 2, pipeline: 2, data: 2, zero_stage: 1, virtual_stages: 2}",
        "training.global_batch_size=16", "training.recompute.mode=full"}},
      {"ramp",
       {"parallel={pipeline: 2, data: 2}", "training.train_iters=null",
        "training.global_batch_size=null", "training.train_samples=320",
        "training.batch_ramp=\"0:4 80:8\""}},
      {"unsaved", {"checkpoint.directory=none"}},
      {"weights",
       {pairs, "training.eval={every_iters: 5, iters: 0}", "checkpoint.load=weights",
        "checkpoint.load_kind=weights"}},
      {"gpu", {"placement.device=gpu", "parallel.data=2", pairs}, /*gpu=*/true},
      {"bench", {"kind=bench", "training.train_iters=null"}},
  };
}

constexpr std::string_view kText = R"(
name: tiny
model: {layers: 4, hidden_size: 16, heads: 4, seq_length: 16, hidden_dropout: 0.1}
data: {path: [text], split: "90,10,0", tokenizer: {type: byte}}
training: {micro_batch_size: 2, global_batch_size: 8, train_iters: 20}
optimizer: {lr: 1e-3, min_lr: 1e-4, warmup: 3, weight_decay: 0.1}
)";

// Why some fields need not change what a rank is built with.
const std::map<std::string, std::string>& Exceptions() {
  static const std::map<std::string, std::string> exceptions = {
      {"name", "a name; the default directory has it"},
      {"namespace", "whose job it is"},
      {"labels", "for selection in lists"},
      {"priority", "the coordinator's order of jobs"},
      {"kind", "another kind has another length, so a file has both or is refused"},
      {"model.preset", "fills what the file leaves out, and the file wins"},
      {"data.mock", "goes with no other data, so it is refused beside it"},
      {"data.test", "never acts, and is said"},
      {"data.tokenizer.type", "compared with the data's record when it is opened"},
      {"data.tokenizer.file", "likewise"},
      {"data.tokenizer.vocab", "likewise"},
      {"data.tokenizer.merges", "likewise"},
      {"training.loss_scale.mode", "auto takes it from value; what it could change is refused"},
      {"placement.device", "the slots decide"},
      {"placement.node_selector", "the coordinator's choice of nodes"},
      {"placement.exclusive", "likewise"},
      {"resilience.on_agent_exit", "the worker agent's"},
      {"resilience.deadline", "the coordinator's"},
      {"resilience.max_restarts.user", "likewise"},
      {"resilience.max_restarts.hang", "likewise"},
      {"resilience.max_restarts.infra_per_hour", "likewise"},
      {"resilience.max_restarts.no_progress", "likewise"},
      {"resilience.max_restarts.storage", "likewise"},
      {"telemetry.log_format", "of the lines in the rank's log"},
      {"telemetry.tensorboard", "the worker agent's"},
  };
  return exceptions;
}

// Fields of jobs that read alone (tests/worker/decode, tests/worker/rank): a job that trains has
// none.
bool IsOfReaders(const std::string& path) {
  return path.starts_with("read.") || path.starts_with("generate.") || path.starts_with("eval.");
}

// Other values of a field, as words of a job file. `now`: the number that it is.
Texts OtherValues(const std::string& path, const std::string& now) {
  static const std::map<std::string, Texts> given = {
      {"model.vocab_divisible_by", {"96"}},
      {"model.attention_dropout", {"0.2"}},
      {"data.path", {"[other]"}},
      {"data.train", {"[other]"}},
      {"data.valid", {"[text]"}},
      {"data.split", {"\"50,40,10\""}},
      {"data.cache", {"elsewhere"}},
      {"parallel.layout", {"\"1,3\"", "\"2,1,1,0\""}},
      {"parallel.bucket_size", {"4KiB"}},
      {"training.train_samples", {"480"}},
      {"training.eval.prompts", {"[abc]"}},
      {"training.train_tokens", {"5120"}},
      {"training.batch_ramp", {"\"0:4 64:8\""}},
      {"training.recordings", {"true"}},
      {"training.exit_after", {"7m"}},
      {"optimizer.warmup", {"4", "33%"}},
      {"optimizer.warmup_init", {"1e-5"}},
      {"optimizer.decay_over", {"15", "80%"}},
      {"optimizer.wsd.over", {"4", "33%"}},
      {"checkpoint.directory", {"elsewhere"}},
      {"checkpoint.every", {"7m"}},
      {"checkpoint.second", {"second"}},
      {"checkpoint.load", {"another"}},
      {"checkpoint.load_tag", {"tag"}},
      {"resilience.timeouts.comm_init", {"7m"}},
      {"resilience.timeouts.load", {"7m"}},
      {"resilience.timeouts.checkpoint", {"7m"}},
      {"resilience.timeouts.collective", {"7m"}},
  };
  if (const auto chosen = given.find(path); chosen != given.end()) return chosen->second;
  const spec::FieldWords* words = spec::FindFieldWords(path);
  if (words != nullptr && !words->values.empty()) return words->values;
  if (now.empty()) return {"3", "0.5"};
  const double value = std::stod(now);
  // One of them is a whole number where the field is, the other one is below.
  return {fmt::format("{}", value * 2), fmt::format("{}", value + 1), fmt::format("{}", value / 2)};
}

class FieldsActTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(base::MakeDirs(dir_.path() + "/data").ok());
    WriteTokens(dir_.path() + "/data/text", 200);
    WriteTokens(dir_.path() + "/data/other", 120);
  }

  // The job of these overrides; what is told of it instead where it is refused.
  static spec::Faults Make(const Base& base, const Texts& more, JobSpec* job) {
    Texts overrides = base.overrides;
    overrides.insert(overrides.end(), more.begin(), more.end());
    spec::Faults faults = spec::LoadJob(kText, overrides, {}, job);
    if (faults.empty()) faults = spec::ResolveForSlots({.gpu = base.gpu}, job);
    return faults;
  }

  std::string BuiltWith(const JobSpec& job) {
    Facts facts;
    PutEngines(job, &facts);
    PutRun(job, &facts);
    return facts.text() + Data(job);
  }

  // The number that the field is in the completed job; "" where it is none.
  static std::string NumberAt(const nlohmann::json& job, std::string path) {
    std::ranges::replace(path, '.', '/');
    const nlohmann::json::json_pointer at("/" + path);
    return job.contains(at) && job.at(at).is_number() ? job.at(at).dump() : "";
  }

  TempDir dir_;

 private:
  // The samples that a run of the job reads, and where their indices are kept. Opened once for all
  // jobs that are alike in what worker/train/run_data.cc reads.
  std::string Data(const JobSpec& job) {
    const spec::Course course = spec::CourseOf(job);
    const std::string key = fmt::format(
        "{} {} {} {} {} {} {}", job.data().SerializeAsString(),
        job.training().eval().SerializeAsString(), course.samples, course.steps,
        job.model().seq_length(), job.model().vocab_size(), job.training().global_batch_size());
    const auto [at, is_new] = data_.try_emplace(key);
    if (is_new) at->second = Opened(job, course);
    return at->second;
  }

  std::string Opened(const JobSpec& job, const spec::Course& course) {
    const std::string cache = fmt::format("{}/cache-{}", dir_.path(), data_.size());
    const StatusOr<RunData> data = OpenRunData(
        {.job = &job, .course = course, .data_root = dir_.path() + "/data", .cache_root = cache});
    if (!data.ok()) return base::Message(data.status());
    Facts facts;
    for (const auto& set : {data->train, data->valid, data->whole_valid}) {
      if (set == nullptr) continue;
      facts.Put(set->num_samples(), set->PositionsRestartBehind(0).value_or(-1));
      std::vector<int32_t> tokens(static_cast<size_t>(set->seq_length()) + 1);
      std::vector<float> weights(static_cast<size_t>(set->seq_length()));
      for (int64_t i = 0; i < std::min<int64_t>(24, set->num_samples()); ++i) {
        EXPECT_TRUE(set->Read(i, tokens, weights).ok());
        facts.Put(tokens, weights);
      }
    }
    std::set<std::string> folders;
    for (const auto& entry : std::filesystem::directory_iterator(cache))
      folders.insert(entry.path().filename());
    facts.Put(folders);
    return facts.text();
  }

  std::map<std::string, std::string> data_;
};

TEST_F(FieldsActTest, EachFieldActsOrIsRefusedOrIsSaid) {
  std::set<std::string> acts;
  Texts ignored;
  int64_t count = 0;
  for (const Base& base : Bases()) {
    JobSpec job;
    ASSERT_EQ(spec::FormatFaults(Make(base, {}, &job)), "") << base.name;
    const std::string built = BuiltWith(job);
    const nlohmann::json now = nlohmann::json::parse(spec::ToJson(job));
    for (const spec::FieldWords& field : spec::AllFieldWords()) {
      if (field.section || !field.built || Exceptions().contains(field.path)) continue;
      if (kSanitized && count++ % 10 != 0) continue;  // the same code for all, in minutes
      for (const std::string& value : OtherValues(field.path, NumberAt(now, field.path))) {
        const std::string change = field.path + "=" + value;
        JobSpec changed;
        if (!Make(base, {change}, &changed).empty()) continue;
        if (spec::Digest(changed) == spec::Digest(job)) continue;
        if (BuiltWith(changed) != built) {
          acts.insert(field.path);
          continue;
        }
        bool said = false;
        for (const spec::FieldNote& note : spec::FieldNotes(changed))
          said |= note.path == field.path;
        if (!said) ignored.push_back(fmt::format("{}: {}", base.name, change));
      }
    }
  }
  EXPECT_EQ(fmt::format("{}", fmt::join(ignored, "\n")), "")
      << "say in common/spec/field_effects.cc when these act";
  if (kSanitized) return;
  for (const spec::FieldWords& field : spec::AllFieldWords()) {
    if (field.section || !field.built || IsOfReaders(field.path)) continue;
    EXPECT_NE(acts.contains(field.path), Exceptions().contains(field.path))
        << field.path << " changes nothing in any of the jobs here";
  }
}

}  // namespace
}  // namespace mt::train
