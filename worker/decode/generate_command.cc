// A checkpoint that goes away before its weights are in memory is given up for the next newest;
// afterwards nothing of it is read.
#include "worker/decode/generate_command.h"

#include <algorithm>
#include <chrono>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/base/plain_text.h"
#include "worker/checkpoint/format/directory.h"
#include "worker/decode/checkpoint_source.h"
#include "worker/decode/generator.h"
#include "worker/decode/reader_device.h"
#include "worker/decode/saved_text.h"
#include "worker/decode/text_printer.h"
#include "worker/memory/memory.h"

namespace mt::decode {
namespace {

using nlohmann::ordered_json;

// Continuations computed side by side.
constexpr int64_t kWave = 8;

double SecondsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// The prompts' texts: of the flags, or an empty one.
std::vector<std::string> TextsOf(const GenerateFlags& flags) {
  if (flags.prompts.empty()) return {""};
  std::vector<std::string> texts = flags.prompts;
  for (std::string& text : texts) {
    if (text != "-" || !flags.dash_is_stdin) continue;
    text.assign(std::istreambuf_iterator<char>(std::cin), {});
    if (text.ends_with('\n')) text.pop_back();  // that of the line
  }
  return texts;
}

// All that a text needs, in memory.
class Session {
 public:
  Session(const GenerateArgs& args, std::vector<std::string> texts)
      : args_(args), texts_(std::move(texts)) {}

  // Reads the checkpoint; may be called again after an error.
  Status Load(const std::string& directory, const checkpoint::CheckpointId& id) {
    const auto begin = std::chrono::steady_clock::now();
    ASSIGN_OR_RETURN(saved_, ReadSavedModel(directory, id));
    ASSIGN_OR_RETURN(tokenizer_, TokenizerOf(saved_, args_.flags));
    RETURN_IF_ERROR(MakeRequest());
    RETURN_IF_ERROR(MakeModel());
    RETURN_IF_ERROR(LoadWeights({.directory = directory,
                                 .saved = &saved_,
                                 .weights = &model_->weights(),
                                 .backend = device_.backend.get(),
                                 .stream = device_.stream.get()}));
    load_seconds_ = SecondsSince(begin);
    return OkStatus();
  }

  Status Generate() {
    const bool raw = args_.flags.raw;
    TextPrinter printer(args_.out, texts_, args_.flags.samples, raw);
    GenerateHooks hooks{.interrupted = args_.interrupted};
    if (!args_.flags.json) {
      hooks.on_text = [&](int64_t prompt, int64_t sample, std::string_view text, bool ended) {
        printer.Add(prompt, sample, text, ended);
      };
    }
    ASSIGN_OR_RETURN(const GenerateReport report,
                     decode::Generate(model_.get(), *tokenizer_, request_, hooks));
    if (args_.flags.json) {
      RETURN_IF_ERROR(args_.out(Json(report)));
    } else {
      printer.Finish();
      RETURN_IF_ERROR(printer.status());
    }
    if (args_.tell) args_.tell(Summary(report));
    const bool whole = std::ranges::none_of(report.continuations, [](const Continuation& one) {
      return one.finish == Finish::kInterrupted;
    });
    return whole ? OkStatus() : base::Error(absl::StatusCode::kCancelled, "interrupted");
  }

 private:
  // `request_`, of the flags and what the tokenizer makes of the prompts.
  Status MakeRequest() {
    const GenerateFlags& f = args_.flags;
    request_ = {.samples = f.samples,
                .tokens = f.tokens,
                .sampling = {.temperature = f.temperature,
                             .top_k = f.top_k,
                             .top_p = f.top_p,
                             .repetition_penalty = f.repetition_penalty,
                             .seed = f.seed},
                .stops = f.stops,
                .log_probabilities = f.log_probabilities};
    for (const std::string& text : texts_) {
      request_.prompts.emplace_back();
      RETURN_IF_ERROR(tokenizer_->Encode(text, &request_.prompts.back()));
      if (!request_.prompts.back().empty()) continue;
      if (tokenizer_->eod() == data::kNoEod) {
        return base::InvalidArgument(
            "the {} tokenizer has no end-of-document token that a text could begin behind: give a "
            "prompt",
            tokenizer_->name());
      }
      request_.prompts.back() = {tokenizer_->eod()};
    }
    return CheckPrompts(request_, saved_.config.max_positions, saved_.config.vocab);
  }

  Status MakeModel() {
    model_.reset();
    if (device_.backend == nullptr) {
      ASSIGN_OR_RETURN(device_, MakeReaderDevice(args_.flags, args_.make_backend));
    }
    int64_t longest = 0;
    for (const auto& ids : request_.prompts) longest = std::max(longest, std::ssize(ids));
    const int64_t positions =
        std::min(saved_.config.max_positions, longest + std::max<int64_t>(request_.tokens, 1));
    const auto all = std::ssize(request_.prompts) * request_.samples;
    ASSIGN_OR_RETURN(const int64_t available, memory::AvailableBytes(device_.backend->device()));
    auto made = DecodeModel::Make(
        {.config = DecodeConfig(saved_.config, PrecisionOf(saved_, args_.flags), positions),
         .sequences = std::min(all, kWave),
         .max_rows = RowsAtOnce(args_.flags, longest),
         .memory_limit_bytes = available,
         .backend = device_.backend.get(),
         .stream = device_.stream.get()});
    if (absl::IsResourceExhausted(made.status())) {
      // What is advised there is for training.
      const std::string text(base::Message(made.status()));
      return base::InvalidArgument("{}; fewer tokens or samples take less",
                                   text.substr(0, text.find(';')));
    }
    RETURN_IF_ERROR(made.status());
    model_ = *std::move(made);
    return OkStatus();
  }

  std::string Summary(const GenerateReport& report) const {
    return fmt::format("{} of {}: {} tokens in {:.1f} s after {:.1f} s of loading",
                       checkpoint::FolderName({saved_.manifest.step, saved_.manifest.epoch}),
                       base::CleanLine(saved_.manifest.job_name), report.decoded_tokens,
                       report.prompt_seconds + report.decode_seconds, load_seconds_);
  }

  std::string Json(const GenerateReport& report) const {
    ordered_json texts = ordered_json::array();
    for (const Continuation& one : report.continuations) {
      const auto prompt = static_cast<size_t>(one.prompt);
      texts.push_back({{"prompt", texts_[prompt]},
                       {"prompt_number", one.prompt},
                       {"sample", one.sample},
                       {"prompt_ids", request_.prompts[prompt]},
                       {"ids", one.ids},
                       {"text", one.text},
                       {"finish", Name(one.finish)}});
      if (request_.log_probabilities) texts.back()["logprobs"] = one.log_probabilities;
    }
    const ordered_json out = {{"checkpoint", CheckpointJson(saved_)},
                              {"precision", PrecisionName(saved_, args_.flags)},
                              {"tokenizer", tokenizer_->name()},
                              {"texts", texts},
                              {"timings",
                               {{"load_seconds", load_seconds_},
                                {"prompt_seconds", report.prompt_seconds},
                                {"decode_seconds", report.decode_seconds},
                                {"prompt_tokens", report.prompt_tokens},
                                {"tokens", report.decoded_tokens}}}};
    // A text may be cut within a character.
    return out.dump(2, ' ', /*ensure_ascii=*/args_.terminal,
                    ordered_json::error_handler_t::replace) +
           "\n";
  }

  const GenerateArgs& args_;
  const std::vector<std::string> texts_;
  SavedModel saved_;
  std::unique_ptr<data::Tokenizer> tokenizer_;
  GenerateRequest request_;
  ReaderDevice device_;
  std::unique_ptr<DecodeModel> model_;
  double load_seconds_ = 0;
};

Status CheckFlags(const GenerateArgs& args) {
  const GenerateFlags& f = args.flags;
  RETURN_IF_ERROR(CheckSampling({.temperature = f.temperature,
                                 .top_k = f.top_k,
                                 .top_p = f.top_p,
                                 .repetition_penalty = f.repetition_penalty}));
  if (f.samples > 1 && f.temperature == 0) {
    return base::InvalidArgument(
        "{} samples without a temperature would be {} times the same: set one, such as 0.8",
        f.samples, f.samples);
  }
  if (f.dash_is_stdin && std::ranges::count(f.prompts, "-") > 1)
    return base::InvalidArgument("--prompt - was given twice, and standard input has one text");
  for (const std::string& stop : f.stops)
    if (stop.empty()) return base::InvalidArgument("--stop is empty");
  if (f.raw && args.terminal) {
    return base::InvalidArgument(
        "--raw is for files and programs: what a model writes could control this terminal");
  }
  if (f.log_probabilities && !f.json)
    return base::InvalidArgument("--logprobs is a part of the JSON: add -o json");
  return OkStatus();
}

}  // namespace

Status RunGenerate(const GenerateArgs& args) {
  RETURN_IF_ERROR(CheckFlags(args));
  std::optional<int64_t> step;
  if (args.flags.step >= 0) step = args.flags.step;
  ASSIGN_OR_RETURN(const CheckpointChoice choice,
                   ChooseCheckpoint(args.path, step, args.flags.tag));
  Session session(args, TextsOf(args.flags));
  RETURN_IF_ERROR(UseCheckpoint(choice, [&](const checkpoint::CheckpointId& id) {
    return session.Load(choice.directory, id);
  }));
  return session.Generate();
}

}  // namespace mt::decode
