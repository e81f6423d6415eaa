// `mtctl data merge`, `split` and `import`: data sets made of other ones.
#include <memory>
#include <utility>

#include <CLI/CLI.hpp>

#include "client/commands/byte_progress.h"
#include "client/commands/data.h"
#include "worker/data/token_files/import_shards.h"
#include "worker/data/token_files/rearrange.h"

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
  CLI::App* command =
      context.app->add_subcommand("import", "Make a data set of llm.c's or nanoGPT's .bin shards");
  auto args = std::make_shared<data::ImportArgs>();
  auto type = std::make_shared<std::string>("u16");
  command->add_option("--input", args->inputs, "Shards, in their order")
      ->required()
      ->expected(1, -1);
  command
      ->add_option("--eod", args->eod,
                   "Id that stands between documents, 50256 of GPT-2 (default: one document per "
                   "shard)")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 31));
  command->add_flag("--eod-begins", args->eod_begins,
                    "It begins a document, as llm.c's scripts have it, instead of ending it");
  command->add_option("--token-type", *type, "Of shards without a header: u16 or u32")
      ->check(CLI::IsMember({"u16", "u32"}))
      ->capture_default_str();
  command->add_option("--vocab-size", args->vocab_size, "Ids must be below it")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 31));
  AddOutput(command, args.get(), "Prefix of the .bin and .idx written");
  command->callback([=, options = context.options, run = context.run] {
    *run = [=] {
      data::ImportArgs all = *args;
      all.raw_type = *type == "u16" ? data::TokenType::kU16 : data::TokenType::kI32;
      return Run(all, *options, "importing",
                 [](const data::ImportArgs& given) { return One(data::ImportShards(given)); });
    };
  });
}

}  // namespace mt::client
