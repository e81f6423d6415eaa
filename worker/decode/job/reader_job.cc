// A job's fields become the flags of the programs that read a checkpoint without a job, with paths
// below the roots.
#include "worker/decode/job/reader_job.h"

#include <filesystem>
#include <optional>
#include <utility>

#include "common/base/check.h"
#include "common/spec/job_kind.h"
#include "common/spec/roots.h"
#include "megatrain/v1/job.pb.h"
#include "worker/checkpoint/format/root_marker.h"
#include "worker/decode/checkpoint_source.h"
#include "worker/decode/generate_command.h"
#include "worker/decode/saved_text.h"
#include "worker/decode/scores/eval_command.h"

namespace mt::decode {
namespace {

namespace v1 = megatrain::v1;

std::string PrecisionWord(const v1::Read& read) {
  switch (read.precision()) {
    case v1::Training::PRECISION_FP64:
      return "fp64";
    case v1::Training::PRECISION_FP32:
      return "fp32";
    case v1::Training::PRECISION_BF16:
      return "bf16";
    case v1::Training::PRECISION_FP16:
      return "fp16";
    default:
      return "auto";
  }
}

StatusOr<std::string> Below(const std::string& root, const std::string& relative,
                            const char* field) {
  auto path = spec::ResolveBelow(root, relative);
  if (path.ok()) return path;
  return base::Annotate(path.status(), field);
}

Status SetTokenizer(const v1::Data& data, const std::string& root, ReaderFlags* flags) {
  const v1::Data::Tokenizer& tokenizer = data.tokenizer();
  flags->named_by = "data.tokenizer";
  if (!tokenizer.has_type()) return OkStatus();
  flags->tokenizer = TokenizerType(data);
  const auto place = [&root](bool given, const std::string& relative, const char* field,
                             std::string* to) -> Status {
    if (!given) return OkStatus();
    ASSIGN_OR_RETURN(*to, Below(root, relative, field));
    return OkStatus();
  };
  RETURN_IF_ERROR(
      place(tokenizer.has_file(), tokenizer.file(), "data.tokenizer.file", &flags->tokenizer_file));
  RETURN_IF_ERROR(
      place(tokenizer.has_vocab(), tokenizer.vocab(), "data.tokenizer.vocab", &flags->vocab));
  return place(tokenizer.has_merges(), tokenizer.merges(), "data.tokenizer.merges", &flags->merges);
}

Status SetReaderFlags(const ReaderJobArgs& args, ReaderFlags* flags) {
  const v1::JobSpec& job = *args.job;
  const bool gpu = job.placement().device() == v1::Placement::DEVICE_GPU;
  if (job.read().has_step()) flags->step = job.read().step();
  flags->tag = job.read().tag();
  flags->device = gpu ? "gpu" : "cpu";
  flags->precision = PrecisionWord(job.read());
  if (!gpu) flags->threads = static_cast<int>(job.placement().threads_per_rank());
  flags->json = job.read().output() == v1::Read::OUTPUT_JSON;
  return SetTokenizer(job.data(), args.data_root, flags);
}

Status Generate(const ReaderJobArgs& args, std::string path) {
  const v1::Generate& asked = args.job->generate();
  GenerateArgs run{.path = std::move(path),
                   .out = args.out,
                   .terminal = args.terminal,
                   .tell = args.tell,
                   .interrupted = args.interrupted,
                   .make_backend = args.make_backend};
  GenerateFlags& flags = run.flags;
  RETURN_IF_ERROR(SetReaderFlags(args, &flags));
  flags.prompts.assign(asked.prompts().begin(), asked.prompts().end());
  flags.dash_is_stdin = false;
  flags.tokens = asked.tokens();
  flags.samples = asked.samples();
  flags.temperature = asked.temperature();
  flags.top_k = asked.top_k();
  flags.top_p = asked.top_p();
  flags.repetition_penalty = asked.repetition_penalty();
  flags.stops.assign(asked.stops().begin(), asked.stops().end());
  flags.seed = asked.seed();
  flags.log_probabilities = asked.logprobs();
  return RunGenerate(run);
}

Status Score(const ReaderJobArgs& args, std::string path) {
  EvalArgs run;
  run.path = std::move(path);
  run.out = args.out;
  run.terminal = args.terminal;
  run.shows_progress = args.shows_progress;
  run.live = args.live;
  run.on_progress = args.on_progress;
  run.tell = args.tell;
  run.interrupted = args.interrupted;
  run.make_backend = args.make_backend;
  RETURN_IF_ERROR(SetReaderFlags(args, &run.flags));
  ASSIGN_OR_RETURN(run.flags.tasks, Below(args.data_root, args.job->eval().file(), "eval.file"));
  // As ResolveBelow has resolved the links of the task file's path.
  std::error_code error;
  run.data_root = std::filesystem::canonical(args.data_root, error).string();
  if (error) return base::ErrnoError(error.value(), "resolve " + args.data_root);
  return RunEval(run);
}

// Whether there is something to read. It may be gone a moment later, which whoever reads it says.
Status CheckIsThere(const ReaderJobArgs& args, const std::string& path) {
  const v1::Read& read = args.job->read();
  std::optional<int64_t> step;
  if (read.has_step()) step = read.step();
  const auto choice = ChooseCheckpoint(path, step, read.tag());
  Status there = choice.ok() ? UseCheckpoint(*choice, [](const auto& /*id*/) { return OkStatus(); })
                             : choice.status();
  if (there.ok()) return there;
  if (!absl::IsNotFound(there)) return base::Annotate(there, "read.checkpoint");
  return base::NotFound(
      "read.checkpoint {} below the checkpoint root {}: {}; name another one, or another step or "
      "tag; where nodes have roots of their own, choose one that has it by "
      "placement.node_selector",
      read.checkpoint(), args.checkpoint_root, base::Message(there));
}

}  // namespace

Status RunReaderJob(const ReaderJobArgs& args) {
  const v1::JobSpec& job = *args.job;
  const spec::JobKind& kind = spec::KindOf(job);
  CHECK(kind.reads);
  if (!args.checkpoint_root_id.empty())
    RETURN_IF_ERROR(checkpoint::CheckRootMarker(args.checkpoint_root, args.checkpoint_root_id));
  ASSIGN_OR_RETURN(std::string path,
                   Below(args.checkpoint_root, job.read().checkpoint(), "read.checkpoint"));
  RETURN_IF_ERROR(CheckIsThere(args, path));
  return kind.decodes ? Generate(args, std::move(path)) : Score(args, std::move(path));
}

}  // namespace mt::decode
