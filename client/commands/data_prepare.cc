// `mtctl data prepare`: text to token files.
#include <chrono>
#include <cstdio>
#include <memory>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "client/commands/data.h"
#include "client/commands/prepare_checks.h"
#include "client/commands/tokenizer_flags.h"
#include "client/output/format.h"
#include "client/output/prepare_line.h"
#include "worker/data/prepare/prepare.h"
#include "worker/data/tokenizer.h"

namespace mt::client {
namespace {

struct PrepareFlags {
  data::PrepareArgs args;
  std::string separator, jsonl_key;
  PrepareConsent consent;
  data::TokenizerConfig tokenizer;
};

// One line on a terminal, a few times a second; nothing elsewhere, where the summary is enough.
class ProgressLine {
 public:
  bool Show(const data::PrepareProgress& progress) {
    const auto now = Clock::now();
    const bool done = progress.bytes_done == progress.bytes_total;
    if (!terminal_ || (now < next_ && !done)) return true;
    if (progress.shuffling && !std::exchange(shuffling_, true)) begin_ = now;
    next_ = now + std::chrono::milliseconds(200);
    const std::chrono::duration<double> took = now - begin_;
    std::fprintf(stderr, "\r%s\033[K", PrepareLine(progress, took.count()).c_str());
    std::fflush(stderr);
    shown_ = true;
    return true;
  }
  // Leaves the line as it is and goes to the next.
  void End() {
    if (std::exchange(shown_, false)) std::fputc('\n', stderr);
  }

 private:
  using Clock = std::chrono::steady_clock;

  const bool terminal_ = ::isatty(STDERR_FILENO) == 1;
  Clock::time_point begin_ = Clock::now();
  Clock::time_point next_{};
  bool shown_ = false;
  bool shuffling_ = false;
};

void ShowStats(const data::PrepareStats& stats, const std::string& prefix,
               const GlobalOptions& options) {
  if (IsStructured(options.output)) {
    const nlohmann::ordered_json out = {{"prefix", prefix},
                                        {"files", stats.files},
                                        {"bytes", stats.bytes},
                                        {"documents", stats.documents},
                                        {"empty_documents", stats.empty_documents},
                                        {"tokens", stats.tokens},
                                        {"token_type", TypeName(stats.token_type)},
                                        {"resumed", stats.resumed}};
    std::fputs(RenderTree(out, options.output).c_str(), stdout);
    return;
  }
  std::printf("%s.{bin,idx}: %lld documents, %lld tokens (%s) from %lld file%s, %s\n",
              prefix.c_str(), static_cast<long long>(stats.documents),
              static_cast<long long>(stats.tokens), TypeName(stats.token_type).c_str(),
              static_cast<long long>(stats.files), stats.files == 1 ? "" : "s",
              FormatBytes(stats.bytes).c_str());
}

ExitCode RunPrepare(const PrepareFlags& flags, const GlobalOptions& options) {
  data::PrepareArgs args = flags.args;
  if (!flags.separator.empty()) {
    args.rule = data::DocumentRule::kSeparator;
    args.separator = flags.separator;
  } else if (!flags.jsonl_key.empty()) {
    args.rule = data::DocumentRule::kJsonLines;
    args.jsonl_key = flags.jsonl_key;
  }
  data::TokenizerConfig config = flags.tokenizer;
  SettleTokenizerFlags("byte", &config);
  std::string named = config.type;
  // Text that is ids already can be read where their vocabulary is given.
  if (named == "null" || named == "ids") named = config.vocab_size == 0 ? "null" : "";
  args.refuse_one_document = !flags.consent.one_document;
  const Status fit = CheckPrepare(args, named, flags.consent);
  if (!fit.ok()) return Complain(fit);
  const auto tokenizer = data::MakeTokenizer(config);
  if (!tokenizer.ok()) return Complain(tokenizer.status());
  args.tokenizer = tokenizer->get();
  args.tokenizer_files = config;
  ProgressLine line;
  args.progress = [&](const data::PrepareProgress& progress) { return line.Show(progress); };
  args.judge = [&](std::string_view beginning) {
    return CheckStandardInput(args, beginning, flags.consent);
  };
  const auto stats = data::Prepare(args);
  line.End();
  if (!stats.ok()) return ComplainOfFiles(stats.status());
  ShowStats(*stats, args.output_prefix, options);
  return kExitOk;
}

void AddDocumentFlags(CLI::App* command, PrepareFlags* flags) {
  auto* separator =
      command->add_option("--separator", flags->separator,
                          "Documents are the records between lines that equal this (default: one "
                          "document per file)");
  separator->check(CLI::Validator(
      [](const std::string& text) {
        return text.empty() ? "is empty; leave it out for one document per file" : std::string();
      },
      ""));
  command
      ->add_option("--jsonl-key", flags->jsonl_key, "Documents are this string of each JSON line")
      ->excludes(separator);
  command->add_flag("--allow-json", flags->consent.json,
                    "Take JSON as text where no --jsonl-key is given");
  command->add_flag("--allow-one-document", flags->consent.one_document,
                    "Take text that is one document in all");
  command->add_flag("--append-eod", flags->args.append_eod,
                    "End each document with the tokenizer's end-of-document");
  auto* shuffle = command->add_flag("--shuffle-documents", flags->args.shuffle_documents,
                                    "Shuffle the documents of all inputs");
  command->add_option("--seed", flags->args.seed, "Of the shuffle")
      ->needs(shuffle)
      ->capture_default_str();
}

}  // namespace

void AddDataPrepare(const CommandContext& context) {
  CLI::App* command =
      context.app->add_subcommand("prepare", "Make a .bin/.idx data set from text files");
  auto flags = std::make_shared<PrepareFlags>();
  command
      ->add_option("--input", flags->args.inputs,
                   "Text files, plain, gzip or zstd; folders of them; - is standard input")
      ->required()
      ->expected(1, -1);
  command->add_option("--output", flags->args.output_prefix, "Prefix of the .bin and .idx written")
      ->required();
  AddDocumentFlags(command, flags.get());
  AddTokenizerFlags(command, &flags->tokenizer);
  command
      ->add_option("--threads", flags->args.threads,
                   "That encode; the result does not depend on it (default: one per CPU)")
      ->check(CLI::Range(1, 256));
  command->add_flag("--overwrite", flags->args.overwrite, "Replace existing outputs");
  command->add_flag("--restart", flags->args.restart,
                    "Begin anew where an interrupted run could be gone on with");
  command->callback([=, options = context.options, run = context.run] {
    *run = [=] { return RunPrepare(*flags, *options); };
  });
}

}  // namespace mt::client
