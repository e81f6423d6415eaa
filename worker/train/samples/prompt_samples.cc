// The engine's weights are whole once an evaluation has begun, and its stream orders what is
// computed here behind them.
#include "worker/train/samples/prompt_samples.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/base/log.h"
#include "common/spec/derived.h"
#include "common/spec/memory_formula.h"
#include "kernels/ops/tuning.h"
#include "megatrain/v1/job.pb.h"
#include "worker/comm/process_group.h"
#include "worker/decode/decode_model.h"
#include "worker/decode/generator.h"
#include "worker/decode/network_part.h"
#include "worker/decode/weight_source.h"
#include "worker/engine/engine_config.h"
#include "worker/failure/failure.h"
#include "worker/memory/memory.h"
#include "worker/parallel/tensor_parallel.h"
#include "worker/train/job_data/job_tokenizer.h"

namespace mt::train {
namespace {

constexpr std::string_view kField = "training.eval.prompts";
// Prompts that are gone on from side by side: so many keep keys and values beside training's
// memory, and common/spec/memory_formula.cc counts them.
constexpr int64_t kWave = 8;

// What is not UTF-8, as a part of a character, replaced.
std::string Utf8(const std::string& text) {
  const std::string quoted =
      nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return nlohmann::json::parse(quoted).get<std::string>();
}

EvalSample SampleOf(const std::string& prompt, const decode::Continuation& one) {
  EvalSample sample{
      .prompt = prompt, .text = Utf8(one.text), .finish = std::string(Name(one.finish))};
  if (sample.text.size() > kMostSampleBytes) {
    // Not within a character.
    size_t end = kMostSampleBytes;
    while (end > 0 && (static_cast<unsigned char>(sample.text[end]) & 0xC0U) == 0x80U) --end;
    sample.text.resize(end);
    sample.finish = "cut";
  }
  return sample;
}

StatusOr<decode::GenerateRequest> RequestOf(const megatrain::v1::JobSpec& job,
                                            const data::Tokenizer& tokenizer) {
  const auto& eval = job.training().eval();
  decode::GenerateRequest request{
      .tokens = eval.prompt_tokens(),
      .sampling = {.temperature = eval.prompt_temperature(), .seed = job.training().seed()}};
  for (const std::string& prompt : eval.prompts()) {
    std::vector<int32_t>& ids = request.prompts.emplace_back();
    RETURN_IF_ERROR(base::Annotate(tokenizer.Encode(prompt, &ids),
                                   fmt::format("prompt {}", request.prompts.size())));
    if (!ids.empty()) continue;
    if (tokenizer.eod() == data::kNoEod) {
      return base::InvalidArgument(
          "prompt {} is empty, and the {} tokenizer has no end-of-document token that a text could "
          "begin behind",
          request.prompts.size(), tokenizer.name());
    }
    ids = {tokenizer.eod()};
  }
  return request;
}

// Of the field. What a rank keeps besides is memory, which a status without a cause takes for room
// on a disk.
Status OfPrompts(const Status& status) {
  Status named = base::Annotate(status, kField);
  if (!absl::IsResourceExhausted(named)) return named;
  return failure::WithCause(named, failure::Cause::kOutOfMemory);
}

// What is left to the rank beside its engine.
StatusOr<int64_t> BytesLeft(const PromptSamples::Args& args) {
  kernels::Device& device = args.backend->device();
  if (args.memory_limit_bytes == 0) return memory::AvailableBytes(device);
  const memory::BytesByKind taken = args.engine->MeasureMemory();
  int64_t bytes = memory::Total(taken) - taken[static_cast<size_t>(memory::Kind::kLibraries)];
  if (device.Memory()) bytes -= taken[static_cast<size_t>(memory::Kind::kPinned)];
  return std::max<int64_t>(0, args.memory_limit_bytes - bytes);
}

bool WritesSamples(const megatrain::v1::JobSpec& job, const layout::GroupAxes& axes) {
  return job.training().eval().prompts_size() > 0 && axes.IndexIn(layout::kGradientAxes) == 0;
}

}  // namespace

// What a rank of the first replica has.
struct PromptSamples::Parts {
  std::vector<std::string> prompts;
  std::unique_ptr<data::Tokenizer> tokenizer;
  decode::GenerateRequest request;
  std::unique_ptr<parallel::TensorParallel> tensor;  // nullptr: alone
  std::unique_ptr<decode::TrainedWeights> weights;
  std::unique_ptr<decode::DecodeModel> model;
  parallel::RankGroups* groups = nullptr;

  Status ReadPrompts(const Args& args, const model::GptConfig& trained);
  Status MakeModel(const Args& args, const engine::EngineConfig& config);
  StatusOr<std::vector<EvalSample>> Write(const std::function<void()>& on_token);
};

Status PromptSamples::Parts::ReadPrompts(const Args& args, const model::GptConfig& trained) {
  const auto& asked = args.job->training().eval().prompts();
  prompts.assign(asked.begin(), asked.end());
  ASSIGN_OR_RETURN(tokenizer, OpenJobTokenizer(args.data_root, *args.job, args.tokenizer));
  if (tokenizer->vocab_size() > trained.vocab) {
    return base::FailedPrecondition("the {} tokenizer has {} tokens, the model has {}",
                                    tokenizer->name(), tokenizer->vocab_size(), trained.vocab);
  }
  ASSIGN_OR_RETURN(request, RequestOf(*args.job, *tokenizer));
  return decode::CheckPrompts(request, trained.max_positions, trained.vocab);
}

Status PromptSamples::Parts::MakeModel(const Args& args, const engine::EngineConfig& config) {
  const layout::GroupAxes& axes = args.groups->axes();
  if (args.groups->tp() != nullptr)
    tensor = std::make_unique<parallel::TensorParallel>(args.groups->tp(),
                                                        /*sequence_parallel=*/false);
  weights = std::make_unique<decode::TrainedWeights>(&args.engine->store());
  int64_t longest = 0;
  for (const auto& ids : request.prompts) longest = std::max(longest, std::ssize(ids));
  const int64_t positions = std::min(config.model.max_positions, longest + request.tokens);
  ASSIGN_OR_RETURN(const int64_t available, BytesLeft(args));
  decode::DecodeModel::Args model_args{
      .config = decode::TrainedDecodeConfig(config.model, positions),
      .sequences = std::min(std::ssize(prompts), kWave),
      .logit_rows = kWave,
      .memory_limit_bytes = available,
      .backend = args.backend,
      .stream = &args.engine->stream(),
      .trained = weights.get(),
      .part = {.chunks = config.chunks,
               .stages = axes.SizeOf(layout::kStageAxes),
               .tensor = tensor.get(),
               .ranks = args.groups->decode()}};
  ASSIGN_OR_RETURN(model, decode::DecodeModel::Make(model_args));
  groups = args.groups;
  // Products of long prompts: else the first evaluation would time them.
  kernels::TuningTable* const table = args.backend->tuning();
  return table == nullptr ? OkStatus() : table->Time(table->Missing());
}

StatusOr<std::vector<EvalSample>> PromptSamples::Parts::Write(
    const std::function<void()>& on_token) {
  decode::GenerateHooks hooks;
  hooks.interrupted = [&on_token] {
    on_token();
    return false;
  };
  const StatusOr<decode::GenerateReport> report =
      decode::Generate(model.get(), *tokenizer, request, hooks);
  // Behind a broken group whose calls return before they are done, logits are anything.
  RETURN_IF_ERROR(groups->device_status());
  RETURN_IF_ERROR(model->status());
  std::vector<EvalSample> samples;
  if (!report.ok()) {
    // These ranks have the same logits, and so the same error: training goes on without samples.
    log::Warn("an evaluation writes no samples", {{"why", base::Message(report.status())}});
    return samples;
  }
  for (const decode::Continuation& one : report->continuations)
    samples.push_back(SampleOf(prompts[static_cast<size_t>(one.prompt)], one));
  return samples;
}

PromptSamples::PromptSamples(const Args& args)
    : engine_(args.engine),
      others_(args.groups->axes().SizeOf(layout::kGradientAxes) > 1 ? args.groups->world()
                                                                    : nullptr),
      patience_(spec::SaveTimeout(*args.job)) {}
PromptSamples::~PromptSamples() = default;

int64_t PromptSamples::PlannedBytes(const megatrain::v1::JobSpec& job,
                                    const layout::GroupAxes& axes) {
  if (!WritesSamples(job, axes)) return 0;
  return spec::PromptMemoryOf(job, axes.IndexIn(layout::kStageAxes));
}

StatusOr<std::unique_ptr<PromptSamples>> PromptSamples::Create(const Args& args) {
  if (args.job->training().eval().prompts_size() == 0) return nullptr;
  std::unique_ptr<PromptSamples> samples(new PromptSamples(args));
  const layout::GroupAxes& axes = args.groups->axes();
  if (!WritesSamples(*args.job, axes)) return samples;
  const engine::EngineConfig config = engine::EngineConfigFromJob(*args.job, axes);
  auto parts = std::make_unique<Parts>();
  RETURN_IF_ERROR(OfPrompts(parts->ReadPrompts(args, config.model)));
  RETURN_IF_ERROR(OfPrompts(parts->MakeModel(args, config)));
  samples->parts_ = std::move(parts);
  return samples;
}

StatusOr<std::vector<EvalSample>> PromptSamples::Write(const std::function<void()>& on_token) {
  std::vector<EvalSample> samples;
  if (parts_ != nullptr) {
    ASSIGN_OR_RETURN(samples, parts_->Write(on_token));
  }
  if (others_ == nullptr) return samples;
  // A replica that writes nothing waits here as long as for a save: in the sums of the next step
  // its patience would be that with one call.
  const comm::OpTimeoutScope patience(others_, patience_);
  RETURN_IF_ERROR(others_->Barrier(engine_->stream()));
  return samples;
}

}  // namespace mt::train
