// `mtctl data merge`, `split` and `import`: data sets made of other ones.
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <CLI/CLI.hpp>

#include "client/commands/byte_progress.h"
#include "client/commands/data.h"
#include "client/commands/tokenizer_flags.h"
#include "worker/data/token_files/import_shards.h"
#include "worker/data/token_files/rearrange.h"
#include "worker/data/tokenizer.h"

namespace mt::client {
namespace {

// Runs `make` with a line of progress and shows what it has written.
template <class Args, class Make>
ExitCode Run(Args args, const GlobalOptions& options, const char* what, const Make& make) {
  BytesLine line(what);
  args.progress = [&](int64_t done, int64_t total) { line.Show(done, total); };
  const auto written = make(std::as_const(args));
  line.Clear();
  if (!written.ok()) return ComplainOfFiles(written.status());
  return ShowWritten(*written, options);
}

using Written = std::vector<data::WrittenDataset>;

StatusOr<Written> One(StatusOr<data::WrittenDataset> written) {
  if (!written.ok()) return written.status();
  return Written{*std::move(written)};
}

template <class Args>
void AddOutput(CLI::App* command, Args* args, const char* help) {
  command->add_option("--output", args->output, help)->required();
  command->add_flag("--overwrite", args->overwrite, "Replace existing outputs");
}

struct ImportFlags {
  data::ImportArgs args;
  bool eod_begins = false;
  bool eod_ends = false;
  std::string token_type;
  data::TokenizerConfig tokenizer;
};

// What the flags say made the ids; nothing where they say nothing.
Status TakeTokenizer(const ImportFlags& flags, data::ImportArgs* args) {
  data::TokenizerConfig config = flags.tokenizer;
  SettleTokenizerFlags("", &config);
  if (config.type.empty()) return OkStatus();
  // Elsewhere it bounds the ids alone.
  if (data::TypeOfName(config.type) == "null") config.vocab_size = flags.args.vocab_size;
  ASSIGN_OR_RETURN(args->tokenizer, data::RecordOf(config, nullptr));
  args->tokenizer_files = std::move(config);
  return OkStatus();
}

ExitCode RunImport(const ImportFlags& flags, const GlobalOptions& options) {
  data::ImportArgs args = flags.args;
  if (flags.eod_begins || flags.eod_ends) args.eod_begins = flags.eod_begins;
  if (!flags.token_type.empty())
    args.raw_type = flags.token_type == "u16" ? data::TokenType::kU16 : data::TokenType::kI32;
  const Status tokenizer = TakeTokenizer(flags, &args);
  if (!tokenizer.ok()) return Complain(tokenizer);
  return Run(args, options, "importing",
             [](const data::ImportArgs& given) { return One(data::ImportShards(given)); });
}

}  // namespace

void AddDataMerge(const CommandContext& context) {
  CLI::App* command = context.app->add_subcommand("merge", "Join data sets, one after the other");
  auto args = std::make_shared<data::MergeArgs>();
  command->add_option("prefixes", args->inputs, "Paths without .bin or .idx")
      ->required()
      ->expected(1, -1);
  AddOutput(command, args.get(), "Prefix of the .bin and .idx written");
  command->callback([=, options = context.options, run = context.run] {
    *run = [=] {
      return Run(*args, *options, "merging",
                 [](const data::MergeArgs& all) { return One(data::MergeDatasets(all)); });
    };
  });
}

void AddDataSplit(const CommandContext& context) {
  CLI::App* command =
      context.app->add_subcommand("split", "Divide a data set by documents, in their order");
  auto args = std::make_shared<data::DivideArgs>();
  command->add_option("prefix", args->input, "Path without .bin or .idx")->required();
  command->add_option("--shares", args->shares, "Of each part, as 969,30,1; of their sum")
      ->required()
      ->delimiter(',');
  AddOutput(command, args.get(), "Prefix of the parts, which are PREFIX_0, PREFIX_1 and so on");
  command->callback([=, options = context.options, run = context.run] {
    *run = [=] { return Run(*args, *options, "dividing", data::DivideDataset); };
  });
}

void AddDataImport(const CommandContext& context) {
  CLI::App* command = context.app->add_subcommand(
      "import", "Make a data set of token files of llm.c, nanoGPT or datatrove");
  auto flags = std::make_shared<ImportFlags>();
  data::ImportArgs* args = &flags->args;
  command
      ->add_option("--input", args->inputs,
                   "Shards (.bin) or .ds files, in their order; what datatrove wrote beside a .ds "
                   "is read with it")
      ->required()
      ->expected(1, -1);
  command
      ->add_option("--eod", args->eod,
                   "Id that stands between documents, 50256 of GPT-2 (default: the tokenizer's; "
                   "without one, and without a .ds.index, each shard is a document)")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 31));
  auto* begins = command->add_flag("--eod-begins", flags->eod_begins,
                                   "It begins a document (default of llm.c's shards)");
  command
      ->add_flag("--eod-ends", flags->eod_ends, "It ends a document (default of all other shards)")
      ->excludes(begins);
  command
      ->add_option("--token-type", flags->token_type,
                   "Of shards that do not say it: u16 or u32 (default: u16)")
      ->check(CLI::IsMember({"u16", "u32"}));
  command
      ->add_option("--vocab-size", args->vocab_size,
                   "Ids must be below it (default: the tokenizer's)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 31));
  AddTokenizerFiles(command, &flags->tokenizer);
  AddOutput(command, args, "Prefix of the .bin and .idx written");
  command->callback([=, options = context.options, run = context.run] {
    *run = [=] { return RunImport(*flags, *options); };
  });
}

}  // namespace mt::client
