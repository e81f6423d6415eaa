// `mtctl checkpoint export`: a checkpoint's weights as a folder for Hugging Face's transformers, or
// as a model file of llm.c.
#include <filesystem>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "client/commands/byte_progress.h"
#include "client/commands/checkpoint.h"
#include "client/commands/checkpoint_place.h"
#include "client/commands/tokenizer_flags.h"
#include "client/output/format.h"
#include "client/session/session.h"
#include "worker/checkpoint/format/directory.h"
#include "worker/checkpoint/inspect/saved_tokenizer.h"
#include "worker/hf/export.h"
#include "worker/hf/tokenizer_texts.h"
#include "worker/llmc/export.h"

namespace mt::client {
namespace {

// Of flags that a model file of llm.c has no use for.
constexpr char kOfHf[] = "Of --format hf: ";

struct ExportFlags {
  std::string from, to;
  std::string format = "hf";
  std::string dtype;
  int64_t max_shard_bytes = hf::ExportArgs().max_shard_bytes;
  bool overwrite = false;
  data::TokenizerConfig tokenizer;
};

// What the checkpoint's job says of its tokenizer; empty: nothing. Its files lie elsewhere.
std::string TokenizerTypeOf(const checkpoint::Manifest& manifest) {
  const auto spec = nlohmann::json::parse(manifest.spec_json, nullptr, false);
  const nlohmann::json::json_pointer type("/data/tokenizer/type");
  const bool there = spec.is_object() && spec.contains(type) && spec.at(type).is_string();
  return there ? spec.at(type).get<std::string>() : "";
}

// Fills in what the flags leave to the checkpoint.
StatusOr<hf::TokenizerTexts> TokenizerOf(const ExportFlags& flags,
                                         const checkpoint::CheckpointPlace& place) {
  ASSIGN_OR_RETURN(const checkpoint::Manifest manifest,
                   checkpoint::ReadManifest(place.directory, place.id));
  const auto words = manifest.tensors.find("weights/embedding.word.weight");
  const int64_t rows =
      words == manifest.tensors.end() || words->second.shape.empty() ? 0 : words->second.shape[0];
  const auto known = checkpoint::TokenizerOf(manifest);
  data::TokenizerConfig config = flags.tokenizer;
  SettleTokenizerFlags("", &config);
  if (config.type.empty() && known) {
    const auto kept = data::FindKeptTokenizer(known->type, known->digest, place.directory);
    if (kept) config = *kept;
  }
  SettleTokenizerFlags(known ? known->type : TokenizerTypeOf(manifest), &config);
  if (config.type.empty()) {
    return base::InvalidArgument(
        "the job of {} does not say what made its tokens: give its --tokenizer with the file, or "
        "--tokenizer null to export the model alone",
        place.folder);
  }
  if (data::TypeOfName(config.type) == "null") config.vocab_size = rows;
  StatusOr<hf::TokenizerTexts> texts = hf::TokenizerTextsOf(config);
  if (!texts.ok())
    return base::Annotate(texts.status(),
                          "the tokenizer of the export (--tokenizer, "
                          "--tokenizer-file, --vocab and --merges name it)");
  if (known && !texts->digest.empty() && texts->digest != known->digest) {
    return base::FailedPrecondition(
        "{} was trained on tokens of the {} tokenizer with digest {}; the files that are named "
        "have digest {}",
        place.folder, known->type, known->digest, texts->digest);
  }
  if (texts->vocab_size > rows) {
    return base::FailedPrecondition(
        "the {} tokenizer has {} tokens, the model of {} has {}: it was trained with another one",
        config.type, texts->vocab_size, place.folder, rows);
  }
  // The ids are another tokenizer's, whose end-of-document token nobody has told.
  if (data::TypeOfName(config.type) == "null" &&
      data::TypeOfName(known ? known->type : TokenizerTypeOf(manifest)) != "null") {
    texts->eos.reset();
  }
  return texts;
}

std::string Text(const hf::ExportResult& result, const std::string& to) {
  std::string text =
      fmt::format("exported to {}: {}, {}, {}\n", to, hf::Architecture(result.family), result.dtype,
                  FormatBytes(result.bytes));
  if (result.family == hf::Family::kQwen2)
    text += "note: for model_type qwen2 transformers 5 uses Qwen2's own rules of splitting text\n";
  return text;
}

ExitCode ExportHf(const ExportFlags& flags, const GlobalOptions& options) {
  const auto place = ResolveCheckpoint(flags.from, options);
  if (!place.ok()) return Complain(place.status());
  const auto tokenizer = TokenizerOf(flags, place->place);
  if (!tokenizer.ok()) return Complain(tokenizer.status());
  BytesLine line("exporting");
  const auto exported =
      hf::Export({.from = place->place,
                  .to = flags.to,
                  .dtype = flags.dtype,
                  .max_shard_bytes = flags.max_shard_bytes,
                  .overwrite = flags.overwrite,
                  .texts = tokenizer->texts,
                  .eos = tokenizer->eos,
                  .progress = [&](int64_t done, int64_t total) { line.Show(done, total); }});
  line.Clear();
  if (!exported.ok()) return Complain(exported.status());
  if (options.output == OutputFormat::kName) return PrintText(flags.to + "\n");
  if (IsTable(options.output)) return PrintText(Text(*exported, flags.to));
  return PrintText(
      RenderTree(nlohmann::ordered_json{{"folder", flags.to},
                                        {"architecture", hf::Architecture(exported->family)},
                                        {"dtype", exported->dtype},
                                        {"bytes", exported->bytes},
                                        {"files", exported->files}},
                 options.output));
}

std::string Text(const llmc::ExportResult& result) {
  const llmc::Header& header = result.header;
  std::string text =
      fmt::format("exported to {}: llm.c version {}, {}, vocabulary {} padded to {}, {}\n",
                  result.file, static_cast<int>(header.version), llmc::TorchNameOf(header.version),
                  header.vocab, header.padded_vocab, FormatBytes(result.bytes));
  if (header.vocab == header.padded_vocab) {
    text +=
        "note: llm.c's dev/eval/export_hf.py makes an empty word table of a vocabulary without "
        "padding; --format hf writes the folder for transformers\n";
  }
  if (header.version == llmc::Version::kF32 && result.trained_in == "float64") {
    text +=
        "note: the job trains in float64, which no file of llm.c has: its weights are rounded to "
        "float32\n";
  }
  return text;
}

ExitCode ExportLlmc(const ExportFlags& flags, const GlobalOptions& options) {
  const auto place = ResolveCheckpoint(flags.from, options);
  if (!place.ok()) return Complain(place.status());
  BytesLine line("exporting");
  const auto exported =
      llmc::Export({.from = place->place,
                    .to = flags.to,
                    .dtype = flags.dtype,
                    .overwrite = flags.overwrite,
                    .progress = [&](int64_t done, int64_t total) { line.Show(done, total); }});
  line.Clear();
  if (!exported.ok()) return Complain(exported.status());
  if (options.output == OutputFormat::kName) return PrintText(exported->file + "\n");
  if (IsTable(options.output)) return PrintText(Text(*exported));
  const std::filesystem::path file = exported->file;
  const std::string folder = file.parent_path().string();
  const auto version = exported->header.version;
  return PrintText(RenderTree(
      nlohmann::ordered_json{
          {"folder", folder.empty() ? "." : folder},
          {"architecture", fmt::format("llm.c version {}", static_cast<int>(version))},
          {"dtype", llmc::TorchNameOf(version)},
          {"bytes", exported->bytes},
          {"files", nlohmann::ordered_json::array({file.filename().string()})}},
      options.output));
}

ExitCode RunExport(const ExportFlags& flags, bool of_hf, const GlobalOptions& options) {
  if (flags.format == "hf") return ExportHf(flags, options);
  if (!of_hf) return ExportLlmc(flags, options);
  return Complain(base::InvalidArgument(
                      "--max-shard-size and the flags of a tokenizer are of --format hf: a model "
                      "file of llm.c is one file, and has no tokenizer"),
                  kExitUsage);
}

}  // namespace

void AddCheckpointExport(CLI::App* checkpoint, const CommandContext& context) {
  CLI::App* command = checkpoint->add_subcommand(
      "export",
      "Write a checkpoint's weights as a folder that Hugging Face's transformers loads, or as a "
      "model file of llm.c");
  auto flags = std::make_shared<ExportFlags>();
  command->add_option("checkpoint", flags->from, kCheckpointHelp)->required();
  command
      ->add_option("dest", flags->to,
                   "The folder that gets the model; made if it is missing. Of llm.c: the file, "
                   "NAME.bin, or a folder that is there, which gets model_STEP.bin")
      ->required();
  command
      ->add_option(
          "--format", flags->format,
          "hf: config.json, safetensors, tokenizer; llmc: one file, version 3 (float32) or "
          "5 (bfloat16)")
      ->check(CLI::IsMember({"hf", "llmc"}))
      ->capture_default_str();
  command
      ->add_option("--dtype", flags->dtype,
                   "float32 or bfloat16; of hf also float16 or float64 (default: what the job "
                   "trains in; of llmc float32 where that is neither)")
      ->check(CLI::IsMember({"float32", "bfloat16", "float16", "float64"}));
  auto* shard_size =
      command
          ->add_option("--max-shard-size", flags->max_shard_bytes,
                       std::string(kOfHf) +
                           "the size of a file of weights, such as 500MB or 2GiB (default: 5GB)")
          ->transform(CLI::AsSizeValue(true))
          ->check(CLI::PositiveNumber);
  command->add_flag("--overwrite", flags->overwrite, "Replace a model that is there");
  AddTokenizerFiles(command, &flags->tokenizer, kOfHf);
  command->callback([=, options = context.options, run = context.run] {
    bool of_hf = shard_size->count() > 0;
    for (const char* const name : {"--tokenizer", "--tokenizer-file", "--vocab", "--merges"})
      of_hf = of_hf || command->count(name) > 0;
    *run = [=] { return RunExport(*flags, of_hf, *options); };
  });
}

}  // namespace mt::client
