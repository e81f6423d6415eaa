// `mtctl data inspect` and `mtctl data verify`: what a data set is, and whether it is sound.
#include <algorithm>
#include <cstdio>
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "client/commands/byte_progress.h"
#include "client/commands/data.h"
#include "client/commands/tokenizer_flags.h"
#include "client/output/format.h"
#include "common/base/plain_text.h"
#include "worker/data/token_files/inspect.h"
#include "worker/data/token_files/verify.h"
#include "worker/data/tokenizer.h"
#include "worker/data/tokenizer/record.h"

namespace mt::client {
namespace {

struct InspectFlags {
  data::InspectArgs args;
  data::TokenizerConfig tokenizer;
};

// The samples' texts, one each; ids where no tokenizer is given.
StatusOr<std::vector<std::string>> SampleTexts(const data::InspectReport& report,
                                               const data::TokenizerConfig& flags) {
  std::vector<std::string> texts;
  if (report.samples.empty()) return texts;
  data::TokenizerConfig config = flags;
  ASSIGN_OR_RETURN(const auto record, data::ReadTokenizerRecord(report.prefix));
  SettleTokenizerFlags(record && record->type == "byte" ? "byte" : "", &config);
  std::unique_ptr<data::Tokenizer> tokenizer;
  if (!config.type.empty()) {
    ASSIGN_OR_RETURN(tokenizer, data::MakeTokenizer(config));
  }
  if (tokenizer != nullptr && record) {
    RETURN_IF_ERROR(
        data::CheckSameTokenizer(*record, data::RecordOfTokenizer(*tokenizer), report.prefix));
  }
  for (const data::DocumentSample& sample : report.samples) {
    if (tokenizer == nullptr) {
      texts.push_back(fmt::format("{}", fmt::join(sample.tokens, " ")));
      continue;
    }
    ASSIGN_OR_RETURN(texts.emplace_back(), tokenizer->Decode(sample.tokens));
  }
  return texts;
}

nlohmann::ordered_json ReportTree(const data::InspectReport& report,
                                  const std::vector<std::string>& texts) {
  nlohmann::ordered_json lengths = nlohmann::ordered_json::array();
  for (const data::LengthBin& bin : report.lengths)
    lengths.push_back({{"low", bin.low}, {"high", bin.high}, {"sequences", bin.sequences}});
  nlohmann::ordered_json samples = nlohmann::ordered_json::array();
  for (size_t i = 0; i < report.samples.size(); ++i) {
    samples.push_back({{"document", report.samples[i].document},
                       {"length", report.samples[i].length},
                       {"text", base::CleanText(texts[i])},
                       {"tokens", report.samples[i].tokens}});
  }
  return {{"prefix", report.prefix},
          {"idx_digest", report.idx_digest},
          {"token_type", TypeName(report.token_type)},
          {"documents", report.documents},
          {"empty_documents", report.empty_documents},
          {"sequences", report.sequences},
          {"tokens", report.tokens},
          {"bin_bytes", report.bin_bytes},
          {"min_length", report.min_length},
          {"mean_length", report.mean_length},
          {"max_length", report.max_length},
          {"first_tokens", report.first_tokens},
          {"lengths", lengths},
          {"samples", samples}};
}

// "  512-1023       1204  ==========", the longest bar for the most sequences.
std::string Histogram(const std::vector<data::LengthBin>& lengths) {
  constexpr int64_t kWidth = 40;
  int64_t most = 1;
  for (const data::LengthBin& bin : lengths) most = std::max(most, bin.sequences);
  std::string text;
  for (const data::LengthBin& bin : lengths) {
    const std::string range =
        bin.low == bin.high ? fmt::format("{}", bin.low) : fmt::format("{}-{}", bin.low, bin.high);
    const auto bar = static_cast<size_t>((bin.sequences * kWidth + most - 1) / most);
    text += fmt::format("  {:>21}  {:>12}  {}\n", range, bin.sequences, std::string(bar, '='));
  }
  return text;
}

void PrintReport(const data::InspectReport& report, const std::vector<std::string>& texts) {
  std::printf(
      "prefix        %s\ntoken type    %s\ndocuments     %lld, %lld of them empty\nsequences     "
      "%lld\ntokens        %lld\nlengths       min %lld, mean %.1f, max %lld\n%s.bin          "
      "%s\ndigest        %s\nfirst tokens  %s\n",
      report.prefix.c_str(), TypeName(report.token_type).c_str(),
      static_cast<long long>(report.documents), static_cast<long long>(report.empty_documents),
      static_cast<long long>(report.sequences), static_cast<long long>(report.tokens),
      static_cast<long long>(report.min_length), report.mean_length,
      static_cast<long long>(report.max_length), Histogram(report.lengths).c_str(),
      FormatBytes(report.bin_bytes).c_str(), report.idx_digest.c_str(),
      fmt::format("{}", fmt::join(report.first_tokens, " ")).c_str());
  for (size_t i = 0; i < texts.size(); ++i) {
    std::printf(
        "document %lld, %lld tokens:\n  %s\n", static_cast<long long>(report.samples[i].document),
        static_cast<long long>(report.samples[i].length), base::CleanLine(texts[i]).c_str());
  }
}

// An id outside of the vocabulary is damage, as a wrong size is.
ExitCode ComplainOfDamage(const Status& status) {
  const ExitCode code = ComplainOfFiles(status);
  return absl::IsInvalidArgument(status) ? kExitIo : code;
}

ExitCode RunInspect(const InspectFlags& flags, const GlobalOptions& options) {
  const auto report = data::Inspect(flags.args);
  if (!report.ok()) return ComplainOfDamage(report.status());
  const auto texts = SampleTexts(*report, flags.tokenizer);
  if (!texts.ok()) return Complain(texts.status());
  if (IsStructured(options.output)) {
    std::fputs(RenderTree(ReportTree(*report, *texts), options.output).c_str(), stdout);
  } else {
    PrintReport(*report, *texts);
  }
  return kExitOk;
}

ExitCode RunVerify(const data::VerifyArgs& asked, const GlobalOptions& options) {
  data::VerifyArgs args = asked;
  const auto record = data::ReadTokenizerRecord(args.prefix);
  if (!record.ok()) return ComplainOfFiles(record.status());
  const std::optional<data::TokenizerRecord>& told = *record;
  if (args.vocab_size == 0 && told.has_value()) args.vocab_size = told->vocab_size;
  BytesLine line("verifying");
  args.progress = [&](int64_t done, int64_t total) { line.Show(done, total); };
  const auto report = data::VerifyDataset(args);
  line.Clear();
  if (!report.ok()) return ComplainOfDamage(report.status());
  if (IsStructured(options.output)) {
    const nlohmann::ordered_json out = {{"prefix", args.prefix},
                                        {"idx_digest", report->idx_digest},
                                        {"tokens_digest", report->tokens_digest},
                                        {"token_type", TypeName(report->token_type)},
                                        {"documents", report->documents},
                                        {"empty_documents", report->empty_documents},
                                        {"sequences", report->sequences},
                                        {"tokens", report->tokens},
                                        {"largest_id", report->largest_id},
                                        {"unreferenced_bytes", report->unreferenced_bytes}};
    std::fputs(RenderTree(out, options.output).c_str(), stdout);
    return kExitOk;
  }
  const std::string below =
      args.vocab_size > 0 ? fmt::format(" of {}", args.vocab_size) : std::string();
  std::printf("%s: sound: %lld documents, %lld tokens (%s), largest id %lld%s\n",
              args.prefix.c_str(), static_cast<long long>(report->documents),
              static_cast<long long>(report->tokens), TypeName(report->token_type).c_str(),
              static_cast<long long>(report->largest_id), below.c_str());
  if (report->unreferenced_bytes > 0) {
    std::fprintf(stderr, "mtctl: note: %lld bytes of the .bin are in no sequence\n",
                 static_cast<long long>(report->unreferenced_bytes));
  }
  return kExitOk;
}

}  // namespace

void AddDataInspect(const CommandContext& context) {
  CLI::App* command =
      context.app->add_subcommand("inspect", "Check a data set's index and print its figures");
  auto flags = std::make_shared<InspectFlags>();
  command->add_option("prefix", flags->args.prefix, "Path without .bin or .idx")->required();
  command->add_option("--preview", flags->args.preview_tokens, "Tokens to show")
      ->check(CLI::Range(0, 10000))
      ->capture_default_str();
  command->add_option("--samples", flags->args.samples, "Documents to show the beginnings of")
      ->check(CLI::Range(0, 10000))
      ->capture_default_str();
  command->add_option("--sample-tokens", flags->args.sample_tokens, "Of each, at most")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  AddTokenizerFlags(command, &flags->tokenizer);
  command->callback([=, options = context.options, run = context.run] {
    *run = [=] { return RunInspect(*flags, *options); };
  });
}

void AddDataVerify(const CommandContext& context) {
  CLI::App* command = context.app->add_subcommand(
      "verify",
      "Read a data set whole: sizes, pointers, documents, every id, its tokenizer's record");
  auto args = std::make_shared<data::VerifyArgs>();
  command->add_option("prefix", args->prefix, "Path without .bin or .idx")->required();
  command
      ->add_option("--vocab-size", args->vocab_size,
                   "Ids must be below it (default: the tokenizer's record says)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 31));
  command->callback([=, options = context.options, run = context.run] {
    *run = [=] { return RunVerify(*args, *options); };
  });
}

}  // namespace mt::client
