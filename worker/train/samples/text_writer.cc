// The decoder's own memory beside the engine's weights, which it reads where they lie.
#include "worker/train/samples/text_writer.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "common/spec/derived.h"
#include "common/spec/memory_formula.h"
#include "kernels/ops/tuning.h"
#include "megatrain/v1/job.pb.h"
#include "worker/decode/decode_model.h"
#include "worker/decode/network_part.h"
#include "worker/decode/weight_source.h"
#include "worker/engine/engine_config.h"
#include "worker/failure/failure.h"
#include "worker/memory/memory.h"
#include "worker/parallel/tensor_parallel.h"
#include "worker/train/job_data/job_tokenizer.h"

namespace mt::train {
namespace {

// Texts that are gone on from side by side: so many keep keys and values beside training's memory,
// and common/spec/memory_formula.cc counts them.
constexpr int64_t kWave = 8;

std::string_view FieldOf(const megatrain::v1::JobSpec& job) {
  return job.training().eval().prompts_size() > 0 ? "training.eval.prompts"
                                                  : "training.eval.decode_tokens";
}

// Of the field. What a rank keeps besides is memory, which a status without a cause takes for room
// on a disk.
Status OfField(const megatrain::v1::JobSpec& job, const Status& status) {
  Status named = base::Annotate(status, FieldOf(job));
  if (!absl::IsResourceExhausted(named)) return named;
  return failure::WithCause(named, failure::Cause::kOutOfMemory);
}

// What is left to the rank beside its engine.
StatusOr<int64_t> BytesLeft(const TextWriter::Args& args) {
  kernels::Device& device = args.backend->device();
  if (args.memory_limit_bytes == 0) return memory::AvailableBytes(device);
  const memory::BytesByKind taken = args.engine->MeasureMemory();
  int64_t bytes = memory::Total(taken) - taken[static_cast<size_t>(memory::Kind::kLibraries)];
  if (device.Memory()) bytes -= taken[static_cast<size_t>(memory::Kind::kPinned)];
  return std::max<int64_t>(0, args.memory_limit_bytes - bytes);
}

bool IsWriter(const megatrain::v1::JobSpec& job, const layout::GroupAxes& axes) {
  return spec::WritesTexts(job) && axes.IndexIn(layout::kGradientAxes) == 0;
}

Status EncodePrompt(const data::Tokenizer& tokenizer, const std::string& prompt, size_t number,
                    std::vector<int32_t>* ids) {
  RETURN_IF_ERROR(base::Annotate(tokenizer.Encode(prompt, ids), fmt::format("prompt {}", number)));
  if (!ids->empty()) return OkStatus();
  if (tokenizer.eod() == data::kNoEod) {
    return base::InvalidArgument(
        "prompt {} is empty, and the {} tokenizer has no end-of-document token that a text could "
        "begin behind",
        number, tokenizer.name());
  }
  *ids = {tokenizer.eod()};
  return OkStatus();
}

StatusOr<decode::GenerateRequest> RequestOf(const megatrain::v1::JobSpec& job,
                                            const data::Tokenizer& tokenizer) {
  const auto& eval = job.training().eval();
  decode::GenerateRequest request{
      .tokens = eval.prompt_tokens(),
      .sampling = {.temperature = eval.prompt_temperature(), .seed = job.training().seed()}};
  for (const std::string& prompt : eval.prompts()) {
    std::vector<int32_t>& ids = request.prompts.emplace_back();
    RETURN_IF_ERROR(EncodePrompt(tokenizer, prompt, request.prompts.size(), &ids));
  }
  return request;
}

}  // namespace

struct TextWriter::Parts {
  std::unique_ptr<data::Tokenizer> tokenizer;
  std::unique_ptr<parallel::TensorParallel> tensor;  // nullptr: alone
  std::unique_ptr<decode::TrainedWeights> weights;
  std::unique_ptr<decode::DecodeModel> model;
  parallel::RankGroups* groups = nullptr;

  Status OpenTokenizer(const Args& args, int64_t vocab);
  Status MakeModel(const Args& args, const engine::EngineConfig& config,
                   const decode::GenerateRequest& prompts);
};

Status TextWriter::Parts::OpenTokenizer(const Args& args, int64_t vocab) {
  ASSIGN_OR_RETURN(tokenizer, OpenJobTokenizer(args.data_root, *args.job, args.tokenizer));
  if (tokenizer->vocab_size() <= vocab) return OkStatus();
  return base::FailedPrecondition("the {} tokenizer has {} tokens, the model has {}",
                                  tokenizer->name(), tokenizer->vocab_size(), vocab);
}

Status TextWriter::Parts::MakeModel(const Args& args, const engine::EngineConfig& config,
                                    const decode::GenerateRequest& prompts) {
  const layout::GroupAxes& axes = args.groups->axes();
  if (args.groups->tp() != nullptr)
    tensor = std::make_unique<parallel::TensorParallel>(args.groups->tp(),
                                                        /*sequence_parallel=*/false);
  weights = std::make_unique<decode::TrainedWeights>(&args.engine->store());
  const int64_t asked = args.job->training().eval().decode_tokens();
  int64_t positions = asked;
  for (const auto& ids : prompts.prompts)
    positions = std::max(positions, std::ssize(ids) + prompts.tokens);
  positions = std::min(config.model.max_positions, positions);
  ASSIGN_OR_RETURN(const int64_t available, BytesLeft(args));
  decode::DecodeModel::Args model_args{
      .config = decode::TrainedDecodeConfig(config.model, positions),
      .sequences = asked > 0 ? kWave : std::min(std::ssize(prompts.prompts), kWave),
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
  // Products of long prompts: else the first text would time them.
  kernels::TuningTable* const table = args.backend->tuning();
  return table == nullptr ? OkStatus() : table->Time(table->Missing());
}

TextWriter::TextWriter(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
TextWriter::~TextWriter() = default;

int64_t TextWriter::PlannedBytes(const megatrain::v1::JobSpec& job, const layout::GroupAxes& axes) {
  if (!IsWriter(job, axes)) return 0;
  return spec::PromptMemoryOf(job, axes.IndexIn(layout::kStageAxes));
}

StatusOr<std::unique_ptr<TextWriter>> TextWriter::Create(const Args& args) {
  const layout::GroupAxes& axes = args.groups->axes();
  if (!IsWriter(*args.job, axes)) return nullptr;
  const engine::EngineConfig config = engine::EngineConfigFromJob(*args.job, axes);
  auto parts = std::make_unique<Parts>();
  RETURN_IF_ERROR(OfField(*args.job, parts->OpenTokenizer(args, config.model.vocab)));
  StatusOr<decode::GenerateRequest> prompts = RequestOf(*args.job, *parts->tokenizer);
  RETURN_IF_ERROR(OfField(*args.job, prompts.status()));
  RETURN_IF_ERROR(OfField(
      *args.job, decode::CheckPrompts(*prompts, config.model.max_positions, config.model.vocab)));
  RETURN_IF_ERROR(OfField(*args.job, parts->MakeModel(args, config, *prompts)));
  std::unique_ptr<TextWriter> writer(new TextWriter(std::move(parts)));
  writer->prompts_ = *std::move(prompts);
  return writer;
}

int64_t TextWriter::positions() const { return parts_->model->config().seq; }

int64_t TextWriter::vocab() const { return parts_->model->config().vocab; }

Status TextWriter::Encode(const std::string& prompt, size_t number,
                          std::vector<int32_t>* ids) const {
  return EncodePrompt(*parts_->tokenizer, prompt, number, ids);
}

Status TextWriter::Write(const decode::GenerateRequest& request, const decode::GenerateHooks& hooks,
                         StatusOr<decode::GenerateReport>* report) {
  *report = decode::Generate(parts_->model.get(), *parts_->tokenizer, request, hooks);
  // Behind a broken group whose calls return before they are done, logits are anything.
  RETURN_IF_ERROR(parts_->groups->device_status());
  return parts_->model->status();
}

}  // namespace mt::train
