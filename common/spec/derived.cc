// Sizes, lengths and texts from the fields of a completed job. Faults are impossible there, so each
// violated assumption is a CHECK. FLOP counts are in flops.cc.
#include "common/spec/derived.h"

#include "common/base/check.h"
#include "common/base/math.h"
#include "common/spec/course.h"
#include "common/spec/job_kind.h"
#include "common/spec/presets.h"
#include "common/spec/text_forms.h"
#include "megatrain/v1/job.pb.h"

namespace mt::spec {
namespace {

namespace v1 = megatrain::v1;

std::string AxesText(const v1::Parallel& parallel) {
  std::string text =
      fmt::format("tp {} x pp {} x dp {}", parallel.tensor(), parallel.pipeline(), parallel.data());
  if (parallel.context() > 1) text += fmt::format(" x cp {}", parallel.context());
  return text;
}

}  // namespace

int64_t HeadDim(const Model& model) {
  return model.has_head_dim() ? model.head_dim()
                              : base::DivExact(model.hidden_size(), model.heads());
}

int64_t StoredHeadDim(const JobSpec& job) {
  constexpr int64_t kGpuUnit = 16;
  const int64_t size = HeadDim(job.model());
  const bool on_gpu = job.placement().device() == v1::Placement::DEVICE_GPU;
  return on_gpu ? base::RoundUp(size, kGpuUnit) : size;
}

int64_t KvHeads(const Model& model) {
  return model.has_kv_heads() ? model.kv_heads() : model.heads();
}

bool IsGated(const Model& model) {
  return model.activation() == Model::ACTIVATION_SWIGLU ||
         model.activation() == Model::ACTIVATION_GEGLU;
}

bool HasFixedWindows(const JobSpec& job) {
  const auto& eval = job.training().eval();
  if (eval.has_windows()) return eval.windows() == v1::Training::Eval::WINDOWS_FIXED;
  return job.checkpoint().keep_best() > 0;
}

bool WritesTexts(const JobSpec& job) {
  const auto& eval = job.training().eval();
  return eval.prompts_size() > 0 || eval.decode_tokens() > 0;
}

int64_t FfnSize(const Model& model) {
  if (model.has_ffn_size()) return model.ffn_size();
  const int64_t h = model.hidden_size();
  // int(8h/3 / 64) * 64, the usual width at which a gated feed-forward layer has as many parameters
  // as a plain one of width 4h.
  return IsGated(model) ? 8 * h / 192 * 64 : 4 * h;
}

int64_t MaxPositions(const Model& model) {
  return model.has_max_positions() ? model.max_positions() : model.seq_length();
}

int64_t KnownVocab(const Model& model) {
  if (model.has_vocab_size()) return model.vocab_size();
  const Preset* const preset = FindPreset(model.preset());
  return preset == nullptr ? 0 : preset->vocab_size;
}

int64_t ParameterCount(const Model& model) {
  const int64_t h = model.hidden_size();
  const int64_t q = model.heads() * HeadDim(model);
  const int64_t kv = 2 * KvHeads(model) * HeadDim(model);
  const int64_t ffn_in = FfnSize(model) * (IsGated(model) ? 2 : 1);
  const bool bias = !model.has_bias() || model.bias();
  const bool qkv_bias = model.has_qkv_bias() ? model.qkv_bias() : bias;
  const int64_t norm = model.norm() == Model::NORM_RMSNORM ? h : 2 * h;
  // Attention's input and output projections, and those of the feed-forward layer.
  int64_t layer = h * (q + kv) + q * h + h * ffn_in + FfnSize(model) * h;
  if (qkv_bias) layer += q + kv;
  if (bias) layer += h + ffn_in + h;
  layer += model.parallel_residual() ? norm : 2 * norm;
  if (model.qk_norm()) layer += 2 * HeadDim(model);  // gains of q and k; QK norm has no shift
  const bool learned = !model.has_position() || model.position() == Model::POSITION_LEARNED;
  const bool tied = !model.has_tie_embeddings() || model.tie_embeddings();
  return model.layers() * layer + norm + KnownVocab(model) * h * (tied ? 1 : 2) +
         (learned ? MaxPositions(model) * h : 0);
}

int64_t PaddedVocab(const Model& model, int64_t tensor) {
  const int64_t unit = (model.has_vocab_divisible_by() ? model.vocab_divisible_by() : 128) * tensor;
  return base::RoundUp(KnownVocab(model), unit);
}

int64_t PaddedVocab(const JobSpec& job) {
  return PaddedVocab(job.model(), job.parallel().has_tensor() ? job.parallel().tensor() : 1);
}

int64_t WorldSize(const JobSpec& job) {
  if (KindOf(job).reads) return 1;
  const v1::Parallel& parallel = job.parallel();
  return parallel.tensor() * parallel.pipeline() * parallel.context() * parallel.data();
}

layout::MeshSizes MeshSizesOf(const JobSpec& job) {
  if (KindOf(job).reads) return {};
  const v1::Parallel& parallel = job.parallel();
  return {.tp = base::CheckedCast<int>(parallel.tensor()),
          .cp = base::CheckedCast<int>(parallel.context()),
          .dp = base::CheckedCast<int>(parallel.data()),
          .pp = base::CheckedCast<int>(parallel.pipeline())};
}

layout::LayerSplit LayerSplitOf(const JobSpec& job) {
  const v1::Parallel& parallel = job.parallel();
  StatusOr<layout::LayerSplit> split = layout::LayerSplit::Create(
      {.layers = job.model().layers(),
       .stages = base::CheckedCast<int>(parallel.pipeline()),
       .virtual_stages = base::CheckedCast<int>(parallel.virtual_stages())},
      parallel.layout());
  CHECK(split.ok()) << "unchecked layers: " << split.status();
  return *std::move(split);
}

std::string LayoutText(const JobSpec& job) {
  const v1::Parallel& parallel = job.parallel();
  if (!parallel.has_tensor() || !parallel.has_pipeline() || !parallel.has_data()) return "";
  std::string text = AxesText(parallel);
  if (parallel.sequence_parallel()) text += ", sequence parallel";
  if (parallel.pipeline() > 1) {
    switch (parallel.schedule()) {
      case v1::Parallel::SCHEDULE_GPIPE:
        text += ", gpipe";
        break;
      case v1::Parallel::SCHEDULE_INTERLEAVED:
        text += fmt::format(", interleaved by {}", parallel.virtual_stages());
        break;
      default:
        text += ", 1f1b";
    }
  }
  if (parallel.zero_stage() > 0) text += fmt::format(", zero {}", parallel.zero_stage());
  return text;
}

std::string MeshText(const JobSpec& job) {
  const v1::Parallel& parallel = job.parallel();
  const bool one = parallel.tensor() == 1 && parallel.pipeline() == 1 && parallel.data() == 1 &&
                   parallel.context() == 1;
  return one || LayoutText(job).empty() ? "" : AxesText(parallel);
}

std::string RankPlaceText(const JobSpec& job, int rank) {
  const v1::Parallel& parallel = job.parallel();
  constexpr int64_t kMostRanks = int64_t{1} << 20;
  for (const int64_t size :
       {parallel.tensor(), parallel.context(), parallel.data(), parallel.pipeline()}) {
    if (size < 1 || size > kMostRanks) return "";
  }
  const StatusOr<layout::Mesh> mesh = layout::Mesh::Create(MeshSizesOf(job));
  if (!mesh.ok() || rank < 0 || rank >= mesh->world_size()) return "";
  const layout::Coordinates at = mesh->CoordinatesOf(rank);
  const std::pair<layout::Axis, int> places[] = {{layout::Axis::kTp, at.tp},
                                                 {layout::Axis::kCp, at.cp},
                                                 {layout::Axis::kPp, at.pp},
                                                 {layout::Axis::kDp, at.dp}};
  std::string text;
  for (const auto& [axis, place] : places) {
    if (mesh->size(axis) == 1) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", layout::Name(axis), place);
  }
  return text;
}

BatchRamp RampOf(const JobSpec& job) {
  const v1::Training& training = job.training();
  if (!training.has_batch_ramp()) return BatchRamp::Constant(training.global_batch_size());
  StatusOr<BatchRamp> ramp = BatchRamp::Parse({.text = training.batch_ramp(),
                                               .global_batch = training.global_batch_size(),
                                               .seq_length = job.model().seq_length()});
  CHECK(ramp.ok()) << "unchecked ramp: " << ramp.status();
  return *std::move(ramp);
}

int64_t Microbatches(const JobSpec& job, int64_t batch) {
  return base::DivExact(batch, job.training().micro_batch_size() * job.parallel().data());
}

int64_t MicrobatchesPerStep(const JobSpec& job) {
  return Microbatches(job, job.training().global_batch_size());
}

int64_t TokensPerStep(const JobSpec& job) {
  return job.training().global_batch_size() * job.model().seq_length();
}

int64_t TotalIterations(const JobSpec& job) {
  const v1::Training& training = job.training();
  if (training.has_train_iters()) return training.train_iters();
  return RampOf(job).StepsFor(training.has_train_samples()
                                  ? training.train_samples()
                                  : training.train_tokens() / job.model().seq_length());
}

int64_t TotalSamples(const JobSpec& job) { return RampOf(job).SamplesAfter(TotalIterations(job)); }

int64_t WarmupSamples(const JobSpec& job) { return WarmupSamples(job, CourseOf(job)); }

int64_t DecaySamples(const JobSpec& job) { return DecaySamples(job, CourseOf(job)); }

int64_t WsdSamples(const JobSpec& job) { return WsdSamples(job, CourseOf(job)); }

std::vector<double> SplitShares(const JobSpec& job) {
  const auto shares = ParseSplit(job.data().split());
  CHECK(shares.has_value()) << "unchecked split \"" << job.data().split() << "\"";
  return *shares;
}

std::vector<DataSource> DataSources(const JobSpec& job, Split split) {
  const v1::Data& data = job.data();
  const auto& own = split == Split::kTrain   ? data.train()
                    : split == Split::kValid ? data.valid()
                                             : data.test();
  const auto& sources = data.path_size() > 0 ? data.path() : own;
  std::vector<DataSource> out;
  for (const v1::Data::Source& source : sources) {
    out.push_back({.weight = source.has_weight() ? std::optional(source.weight()) : std::nullopt,
                   .prefix = source.prefix(),
                   .file = source.file()});
  }
  return out;
}

uint64_t DataSeed(const JobSpec& job) {
  const int64_t seed = job.data().has_seed() ? job.data().seed() : job.training().seed();
  return base::CheckedCast<uint64_t>(seed);
}

std::string CheckpointDirectory(const JobSpec& job) {
  const std::string& directory = job.checkpoint().directory();
  return directory == "none" ? "" : directory;
}

std::string ServiceDirectory(const JobSpec& job) {
  return fmt::format("{}/{}", job.namespace_(), job.name());
}

std::optional<PortRange> Ports(const JobSpec& job) {
  const auto range = ParsePortRange(job.placement().ports());
  if (!range) return std::nullopt;
  return PortRange{.first = range->first, .last = range->second};
}

std::chrono::milliseconds LoadTimeout(const JobSpec& job) {
  const auto& timeouts = job.resilience().timeouts();
  if (!timeouts.has_load()) return std::chrono::minutes(15);
  return std::chrono::milliseconds(timeouts.load());
}

std::chrono::milliseconds SaveTimeout(const JobSpec& job) {
  const auto& timeouts = job.resilience().timeouts();
  if (!timeouts.has_checkpoint()) return std::chrono::hours(1);
  return std::chrono::milliseconds(timeouts.checkpoint());
}

std::chrono::milliseconds CollectiveTimeout(const JobSpec& job) {
  const auto& timeouts = job.resilience().timeouts();
  if (!timeouts.has_collective()) return std::chrono::minutes(10);
  return std::chrono::milliseconds(timeouts.collective());
}

}  // namespace mt::spec
