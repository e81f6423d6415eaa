// `mtctl data prepare` and `mtctl data inspect`: token files on this machine, without a
// coordinator.
#include <cstdio>
#include <memory>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "client/commands/commands.h"
#include "client/commands/prepare_checks.h"
#include "client/output/format.h"
#include "worker/data/inspect.h"
#include "worker/data/prepare.h"
#include "worker/data/tokenizer.h"

namespace mt::client {
namespace {

struct PrepareFlags {
  data::PrepareArgs args;
  std::string separator, jsonl_key;
  std::string tokenizer = "byte";
};

std::string TypeName(data::TokenType type) {
  return fmt::format("{}{}",
                     type == data::TokenType::kU8 || type == data::TokenType::kU16 ? "u" : "i",
                     8 * data::SizeOf(type));
}

// A progress bar on a terminal; nothing elsewhere, where the summary is enough.
bool ShowProgress(const data::PrepareProgress& p) {
  if (::isatty(STDERR_FILENO) != 1) return true;
  constexpr int kWidth = 30;
  const double fraction =
      p.bytes_total > 0 ? static_cast<double>(p.bytes_done) / static_cast<double>(p.bytes_total)
                        : 1;
  const std::string bar(static_cast<size_t>(fraction * kWidth), '=');
  std::fprintf(stderr, "\r[%-*s] %3.0f%%  %s of %s  %s documents  %s tokens\033[K", kWidth,
               bar.c_str(), 100 * fraction, FormatBytes(p.bytes_done).c_str(),
               FormatBytes(p.bytes_total).c_str(),
               FormatRate(static_cast<double>(p.documents)).c_str(),
               FormatRate(static_cast<double>(p.tokens)).c_str());
  if (p.bytes_done == p.bytes_total) std::fputc('\n', stderr);
  return true;
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
  const Status fit = CheckPrepare(args, flags.tokenizer);
  if (!fit.ok()) return Complain(fit);
  const auto tokenizer = data::MakeTokenizer({.type = flags.tokenizer});
  if (!tokenizer.ok()) return Complain(tokenizer.status());
  args.tokenizer = tokenizer->get();
  args.progress = ShowProgress;
  const auto stats = data::Prepare(args);
  if (!stats.ok()) return Complain(stats.status());
  const std::string note = PrepareNote(*stats);
  if (!note.empty()) std::fprintf(stderr, "mtctl: note: %s\n", note.c_str());
  if (IsStructured(options.output)) {
    const nlohmann::ordered_json out = {{"prefix", args.output_prefix},
                                        {"files", stats->files},
                                        {"bytes", stats->bytes},
                                        {"documents", stats->documents},
                                        {"empty_documents", stats->empty_documents},
                                        {"tokens", stats->tokens},
                                        {"token_type", TypeName(stats->token_type)}};
    std::fputs(RenderTree(out, options.output).c_str(), stdout);
  } else {
    std::printf("%s.{bin,idx}: %lld documents, %lld tokens (%s) from %lld file%s, %s\n",
                args.output_prefix.c_str(), static_cast<long long>(stats->documents),
                static_cast<long long>(stats->tokens), TypeName(stats->token_type).c_str(),
                static_cast<long long>(stats->files), stats->files == 1 ? "" : "s",
                FormatBytes(stats->bytes).c_str());
  }
  return kExitOk;
}

ExitCode RunInspect(const std::string& prefix, int64_t preview, const GlobalOptions& options) {
  const auto report = data::Inspect(prefix, preview);
  if (!report.ok()) return Complain(report.status());
  if (IsStructured(options.output)) {
    const nlohmann::ordered_json out = {{"prefix", report->prefix},
                                        {"idx_digest", report->idx_digest},
                                        {"token_type", TypeName(report->token_type)},
                                        {"documents", report->documents},
                                        {"sequences", report->sequences},
                                        {"tokens", report->tokens},
                                        {"bin_bytes", report->bin_bytes},
                                        {"min_length", report->min_length},
                                        {"mean_length", report->mean_length},
                                        {"max_length", report->max_length},
                                        {"first_tokens", report->first_tokens}};
    std::fputs(RenderTree(out, options.output).c_str(), stdout);
    return kExitOk;
  }
  std::printf(
      "prefix        %s\ntoken type    %s\ndocuments     %lld\nsequences     %lld\ntokens        "
      "%lld\n"
      "lengths       min %lld, mean %.1f, max %lld\n.bin          %s\ndigest        %s\nfirst "
      "tokens  %s\n",
      report->prefix.c_str(), TypeName(report->token_type).c_str(),
      static_cast<long long>(report->documents), static_cast<long long>(report->sequences),
      static_cast<long long>(report->tokens), static_cast<long long>(report->min_length),
      report->mean_length, static_cast<long long>(report->max_length),
      FormatBytes(report->bin_bytes).c_str(), report->idx_digest.c_str(),
      fmt::format("{}", fmt::join(report->first_tokens, " ")).c_str());
  return kExitOk;
}

void AddPrepare(CLI::App* data_command, const CommandContext& context) {
  CLI::App* command =
      data_command->add_subcommand("prepare", "Make a .bin/.idx data set from text files");
  auto flags = std::make_shared<PrepareFlags>();
  command->add_option("--input", flags->args.inputs, "Text files")->required()->expected(1, -1);
  command->add_option("--output", flags->args.output_prefix, "Prefix of the .bin and .idx written")
      ->required();
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
  command->add_flag("--append-eod", flags->args.append_eod,
                    "End each document with the tokenizer's end-of-document");
  auto* shuffle = command->add_flag("--shuffle-documents", flags->args.shuffle_documents,
                                    "Shuffle the documents of all inputs");
  command->add_option("--seed", flags->args.seed, "Of the shuffle")
      ->needs(shuffle)
      ->capture_default_str();
  command->add_option("--tokenizer", flags->tokenizer, "byte")->capture_default_str();
  command->add_flag("--overwrite", flags->args.overwrite, "Replace existing outputs");
  command->callback([=, options = context.options, run = context.run] {
    *run = [=] { return RunPrepare(*flags, *options); };
  });
}

void AddInspect(CLI::App* data_command, const CommandContext& context) {
  CLI::App* command =
      data_command->add_subcommand("inspect", "Check a data set and print its figures");
  struct Args {
    std::string prefix;
    int64_t preview = 16;
  };
  auto args = std::make_shared<Args>();
  command->add_option("prefix", args->prefix, "Path without .bin or .idx")->required();
  command->add_option("--preview", args->preview, "Tokens to show")
      ->check(CLI::Range(0, 10000))
      ->capture_default_str();
  command->callback([=, options = context.options, run = context.run] {
    *run = [=] { return RunInspect(args->prefix, args->preview, *options); };
  });
}

}  // namespace

void AddData(const CommandContext& context) {
  CLI::App* command =
      context.app->add_subcommand("data", "Make and check data sets")->require_subcommand(1);
  AddPrepare(command, context);
  AddInspect(command, context);
}

}  // namespace mt::client
