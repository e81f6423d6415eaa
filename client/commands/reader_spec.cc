// Fields are set as flags have them: what is wrong with their values, the coordinator says by
// field, as of any job.
#include "client/commands/reader_spec.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <optional>
#include <string_view>
#include <system_error>

#include "client/dev/dev_state.h"
#include "common/base/files.h"
#include "common/base/plain_text.h"
#include "megatrain/v1/job.pb.h"
#include "megatrain/v1/types.pb.h"
#include "worker/decode/generate_flags.h"
#include "worker/decode/scores/eval_flags.h"

namespace mt::client {
namespace {

using JobTraining = v1::Training;
using JobTokenizer = v1::Data::Tokenizer;

// "auto" is what an unset field means.
std::optional<JobTraining::Precision> PrecisionNamed(std::string_view word) {
  if (word == "fp32") return JobTraining::PRECISION_FP32;
  if (word == "fp64") return JobTraining::PRECISION_FP64;
  if (word == "bf16") return JobTraining::PRECISION_BF16;
  if (word == "fp16") return JobTraining::PRECISION_FP16;
  return std::nullopt;
}

StatusOr<JobTokenizer::Type> TokenizerNamed(const std::string& word) {
  if (word == "byte") return JobTokenizer::TYPE_BYTE;
  if (word == "null") return JobTokenizer::TYPE_NULL;
  if (word == "gpt2_bpe") return JobTokenizer::TYPE_GPT2_BPE;
  if (word == "hf") return JobTokenizer::TYPE_HF;
  if (word == "sentencepiece") return JobTokenizer::TYPE_SENTENCEPIECE;
  return base::InvalidArgument(
      "--tokenizer {} is unknown: byte, null (numbers), gpt2_bpe, hf or sentencepiece", word);
}

// The path of a file below the nodes' data root. One that is not on this machine is taken as a job
// file would have it.
StatusOr<std::string> BelowDataRoot(const std::string& flag, const std::string& path,
                                    const std::string& data_root) {
  namespace fs = std::filesystem;
  std::error_code error;
  const bool is_here = fs::exists(path, error);
  if (!is_here && fs::path(path).is_relative()) return path;
  if (is_here && !data_root.empty()) {
    const fs::path file = fs::canonical(path, error);
    const fs::path root = error ? fs::path() : fs::canonical(data_root, error);
    std::string relative = error ? ".." : file.lexically_relative(root).string();
    if (!relative.empty() && !relative.starts_with("..")) return relative;
  }
  return base::InvalidArgument(
      "{} {} does not lie below the nodes' data root{}: put it there, with what it names (and "
      "where that folder is another one here, say so by --data-root), or have this machine read "
      "the checkpoint, by --local",
      flag, path, data_root.empty() ? "" : " " + data_root);
}

Status SetTokenizer(const decode::ReaderFlags& flags, const ReaderSource& source,
                    v1::JobSpec* job) {
  const auto set_file = [&](const char* flag, const std::string& path, auto set) -> Status {
    if (path.empty()) return OkStatus();
    ASSIGN_OR_RETURN(const std::string below, BelowDataRoot(flag, path, source.data_root));
    set(job->mutable_data()->mutable_tokenizer(), below);
    return OkStatus();
  };
  if (!flags.tokenizer.empty()) {
    ASSIGN_OR_RETURN(const JobTokenizer::Type type, TokenizerNamed(flags.tokenizer));
    job->mutable_data()->mutable_tokenizer()->set_type(type);
  }
  RETURN_IF_ERROR(set_file("--tokenizer-file", flags.tokenizer_file,
                           [](auto* to, const std::string& path) { to->set_file(path); }));
  RETURN_IF_ERROR(set_file("--vocab", flags.vocab,
                           [](auto* to, const std::string& path) { to->set_vocab(path); }));
  return set_file("--merges", flags.merges,
                  [](auto* to, const std::string& path) { to->set_merges(path); });
}

// What the name has behind its colon: a step, a checkpoint's folder, or a tag.
Status SetWhat(const std::string& what, v1::Read* read) {
  if (what.empty()) return OkStatus();
  if (read->has_step() || read->has_tag()) {
    return base::InvalidArgument(
        "the checkpoint is named twice, by \":{}\" and by a flag: leave one out", what);
  }
  if (what.starts_with("step-")) {
    read->set_checkpoint(base::JoinPath(read->checkpoint(), what));
  } else if (std::ranges::all_of(what, [](char c) { return c >= '0' && c <= '9'; })) {
    int64_t step = 0;
    const auto [end, error] = std::from_chars(what.data(), what.data() + what.size(), step);
    if (error != std::errc() || end != what.data() + what.size())
      return base::InvalidArgument("no checkpoint has the step {}", what);
    read->set_step(step);
  } else {
    read->set_tag(what);
  }
  return OkStatus();
}

Status SetRead(const decode::ReaderFlags& flags, const ReaderSource& source, v1::JobSpec* job) {
  const std::string& directory = source.job->spec().checkpoint().directory();
  if (directory.empty() || directory == "none") {
    return base::FailedPrecondition(
        "job '{}' saves no checkpoints (checkpoint.directory is none): there is nothing to read",
        source.job->name());
  }
  v1::Read* const read = job->mutable_read();
  read->set_checkpoint(directory);
  if (flags.step >= 0) read->set_step(flags.step);
  if (!flags.tag.empty()) read->set_tag(flags.tag);
  RETURN_IF_ERROR(SetWhat(source.what, read));
  if (const auto precision = PrecisionNamed(flags.precision)) read->set_precision(*precision);
  read->set_output(flags.json ? v1::Read::OUTPUT_JSON : v1::Read::OUTPUT_TEXT);
  v1::Placement* const placement = job->mutable_placement();
  if (source.device_given) {
    placement->set_device(flags.device == "gpu" ? v1::Placement::DEVICE_GPU
                                                : v1::Placement::DEVICE_CPU);
  }
  if (source.threads_given) placement->set_threads_per_rank(flags.threads);
  return SetTokenizer(flags, source, job);
}

Status CheckText(const char* flag, const std::string& text) {
  const std::string why = base::ControlIn(text);
  if (why.empty()) return OkStatus();
  return base::InvalidArgument("{} has {}, which a job's texts cannot hold; --local takes it", flag,
                               why);
}

StatusOr<std::string> PromptOf(const std::string& prompt) {
  std::string text = prompt;
  if (text == "-") {
    text.assign(std::istreambuf_iterator<char>(std::cin), {});
    if (text.ends_with('\n')) text.pop_back();  // that of the line
  }
  RETURN_IF_ERROR(CheckText("--prompt", text));
  return text;
}

}  // namespace

StatusOr<v1::Generate> GenerateOf(const decode::GenerateFlags& flags) {
  if (std::ranges::count(flags.prompts, "-") > 1)
    return base::InvalidArgument("--prompt - was given twice, and standard input has one text");
  if (flags.raw) {
    return base::InvalidArgument(
        "--raw is for --local: a job's text has control characters written out; -o json has all "
        "of it");
  }
  v1::Generate generate;
  for (const std::string& prompt : flags.prompts) {
    ASSIGN_OR_RETURN(*generate.add_prompts(), PromptOf(prompt));
  }
  for (const std::string& stop : flags.stops) {
    RETURN_IF_ERROR(CheckText("--stop", stop));
    generate.add_stops(stop);
  }
  generate.set_tokens(flags.tokens);
  generate.set_samples(flags.samples);
  generate.set_temperature(flags.temperature);
  generate.set_top_k(flags.top_k);
  generate.set_top_p(flags.top_p);
  generate.set_repetition_penalty(flags.repetition_penalty);
  generate.set_seed(flags.seed);
  generate.set_logprobs(flags.log_probabilities);
  return generate;
}

StatusOr<v1::JobSpec> GenerateSpec(const decode::GenerateFlags& flags, const ReaderSource& source) {
  v1::JobSpec job;
  job.set_kind(v1::JobSpec::KIND_GENERATE);
  RETURN_IF_ERROR(SetRead(flags, source, &job));
  ASSIGN_OR_RETURN(*job.mutable_generate(), GenerateOf(flags));
  return job;
}

StatusOr<v1::JobSpec> EvalSpec(const decode::EvalFlags& flags, const ReaderSource& source) {
  v1::JobSpec job;
  job.set_kind(v1::JobSpec::KIND_EVAL);
  RETURN_IF_ERROR(SetRead(flags, source, &job));
  ASSIGN_OR_RETURN(const std::string file, BelowDataRoot("-f", flags.tasks, source.data_root));
  job.mutable_eval()->set_file(file);
  return job;
}

std::string DevDataRoot(const GlobalOptions& options) {
  std::string source;
  if (!ResolveEndpoint(options, &source).ok() || source != DevEndpointFile()) return "";
  const std::optional<DevState> dev =
      ReadDevState(base::JoinPath(StateFolder(), "dev/dev.json")).value_or(std::nullopt);
  return dev ? dev->settings.data_root : "";
}

}  // namespace mt::client
