// `mtctl tokenizer`: trains byte-level BPE, encodes, decodes and shows tokenizers, on this machine
// without a coordinator.
#include "worker/data/tokenizer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <memory>
#include <thread>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "client/commands/commands.h"
#include "client/commands/tokenizer_flags.h"
#include "client/output/format.h"
#include "common/base/files.h"
#include "worker/data/mapped_file.h"
#include "worker/data/tokenizer/fast_splitters.h"
#include "worker/data/tokenizer/hf_file.h"
#include "worker/data/tokenizer/training/bpe_trainer.h"

namespace mt::client {
namespace {

struct TextFlags {
  data::TokenizerConfig config;
  std::string file = "-";
};

struct TrainFlags {
  std::vector<std::string> inputs;
  std::string output;
  std::string pattern = "llama3";
  std::vector<std::string> specials = {"<|endoftext|>"};
  int64_t vocab_size = 32000;
  int64_t min_count = 2;
  int threads = 0;
  bool overwrite = false;
};

StatusOr<std::unique_ptr<data::Tokenizer>> Make(data::TokenizerConfig config) {
  SettleTokenizerFlags("byte", &config);
  return data::MakeTokenizer(config);
}

StatusOr<std::string> ReadInput(const std::string& file) {
  return base::ReadFile(file == "-" ? "/dev/stdin" : file);
}

std::string PatternOf(const std::string& name) {
  if (name == "gpt2") return std::string(data::kGpt2Pattern);
  if (name == "llama3") return std::string(data::kLlama3Pattern);
  return name;
}

void Write(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

ExitCode RunEncode(const TextFlags& flags, const GlobalOptions& options) {
  const auto tokenizer = Make(flags.config);
  if (!tokenizer.ok()) return Complain(tokenizer.status());
  const auto text = ReadInput(flags.file);
  if (!text.ok()) return Complain(text.status());
  std::vector<int32_t> ids;
  const Status status = (*tokenizer)->Encode(*text, &ids);
  if (!status.ok()) return Complain(base::Annotate(status, flags.file));
  if (IsStructured(options.output)) {
    Write(RenderTree(nlohmann::ordered_json(ids), options.output));
  } else {
    Write(fmt::format("{}\n", fmt::join(ids, " ")));
  }
  return kExitOk;
}

// Numbers with white space or commas between them, and brackets around: what encode has printed.
StatusOr<std::vector<int32_t>> ParseIds(std::string_view text) {
  constexpr std::string_view kBetween = " \t\r\n,[]";
  std::vector<int32_t> ids;
  for (;;) {
    const size_t begin = text.find_first_not_of(kBetween);
    if (begin == std::string_view::npos) return ids;
    text.remove_prefix(begin);
    const std::string_view word = text.substr(0, text.find_first_of(kBetween));
    int32_t id = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc() || end != word.data() + word.size())
      return base::InvalidArgument("'{}' is no token id", word.substr(0, 32));
    ids.push_back(id);
    text.remove_prefix(word.size());
  }
}

ExitCode RunDecode(const TextFlags& flags, const GlobalOptions& options) {
  const ExitCode refused =
      RefuseFormat(options, "tokenizer decode", "leave -o out: it prints the bytes of the text");
  if (refused != kExitOk) return refused;
  const auto tokenizer = Make(flags.config);
  if (!tokenizer.ok()) return Complain(tokenizer.status());
  const auto text = ReadInput(flags.file);
  if (!text.ok()) return Complain(text.status());
  const auto ids = ParseIds(*text);
  if (!ids.ok()) return Complain(base::Annotate(ids.status(), flags.file));
  const auto decoded = (*tokenizer)->Decode(*ids);
  if (!decoded.ok()) return Complain(decoded.status());
  Write(*decoded);
  return kExitOk;
}

ExitCode RunInspect(const TextFlags& flags, const GlobalOptions& options) {
  const auto tokenizer = Make(flags.config);
  if (!tokenizer.ok()) return Complain(tokenizer.status());
  const data::TokenizerRecord record = data::RecordOfTokenizer(**tokenizer);
  std::string eod_text;
  if (record.eod != data::kNoEod) {
    const auto decoded = (*tokenizer)->Decode(std::array{record.eod});
    if (decoded.ok()) eod_text = *decoded;
  }
  if (IsStructured(options.output)) {
    nlohmann::ordered_json out = nlohmann::ordered_json::parse(data::ToJson(record));
    out.erase("version");
    out.erase("token_bytes");  // a list as long as the vocabulary, for programs that train
    Write(RenderTree(out, options.output));
    return kExitOk;
  }
  const std::string eod =
      record.eod == data::kNoEod ? "none" : fmt::format("{} {}", record.eod, eod_text);
  Write(fmt::format(
      "type             {}\ntokens           {}\nend of document  {}\ndigest           {}\n",
      record.type, record.vocab_size, eod, record.digest.empty() ? "none" : record.digest));
  return kExitOk;
}

bool ShowTraining(int64_t tokens, int64_t wanted) {
  if (::isatty(STDERR_FILENO) != 1) return true;
  std::fprintf(stderr, "\r%lld of %lld tokens\033[K", static_cast<long long>(tokens),
               static_cast<long long>(wanted));
  return true;
}

void EndOfTraining() {
  if (::isatty(STDERR_FILENO) == 1) std::fprintf(stderr, "\r\033[K");
}

StatusOr<data::BpeParts> Train(const TrainFlags& flags) {
  std::vector<data::MappedFile> files;
  std::vector<data::TrainingText> texts;
  for (const std::string& path : flags.inputs) {
    ASSIGN_OR_RETURN(data::MappedFile file, data::MappedFile::Open(path));
    texts.push_back({.name = path, .text = file.view()});
    files.push_back(std::move(file));
  }
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  auto trained = data::TrainTokenizer(
      {.vocab_size = flags.vocab_size,
       .pattern = PatternOf(flags.pattern),
       .specials = flags.specials,
       .min_count = flags.min_count,
       .threads = flags.threads > 0 ? flags.threads : cores,
       .progress = [&](int64_t tokens) { return ShowTraining(tokens, flags.vocab_size); }},
      texts);
  EndOfTraining();
  for (size_t i = 0; i < files.size(); ++i) RETURN_IF_ERROR(files[i].CheckWhole(flags.inputs[i]));
  return trained;
}

ExitCode RunTrain(const TrainFlags& flags, const GlobalOptions& options) {
  if (!flags.overwrite && base::Exists(flags.output)) {
    return Complain(base::Error(absl::StatusCode::kAlreadyExists,
                                "{}: exists already; choose another --output, or --overwrite",
                                flags.output));
  }
  const auto parts = Train(flags);
  if (!parts.ok()) return Complain(parts.status());
  const Status written = base::WriteFileAtomic(flags.output, data::HfFileText(*parts));
  if (!written.ok()) return Complain(written);
  const auto tokens = static_cast<int64_t>(parts->tables.tokens.size());
  const size_t merges = parts->tables.merges.size();
  if (IsStructured(options.output)) {
    Write(RenderTree({{"file", flags.output}, {"tokens", tokens}, {"merges", merges}},
                     options.output));
  } else {
    Write(fmt::format("{}: {} tokens, {} merges\n", flags.output, tokens, merges));
  }
  if (tokens < flags.vocab_size) {
    std::fprintf(
        stderr, "mtctl: note: %lld tokens, not %lld: no other pair occurs %lld times in the text\n",
        static_cast<long long>(tokens), static_cast<long long>(flags.vocab_size),
        static_cast<long long>(std::max<int64_t>(1, flags.min_count)));
  }
  return kExitOk;
}

void AddTrain(CLI::App* parent, const CommandContext& context) {
  CLI::App* command =
      parent->add_subcommand("train", "Train a byte-level BPE vocabulary, as a tokenizer.json");
  auto flags = std::make_shared<TrainFlags>();
  command->add_option("--input", flags->inputs, "Text files")->required()->expected(1, -1);
  command->add_option("--output", flags->output, "The tokenizer.json written")->required();
  command->add_option("--vocab-size", flags->vocab_size, "Tokens, with 256 bytes and the special")
      ->capture_default_str();
  command
      ->add_option("--pattern", flags->pattern,
                   "How text is cut: gpt2, llama3, or a regular expression of PCRE2")
      ->capture_default_str();
  command->add_option("--special", flags->specials,
                      "Special tokens, the first of them end-of-document (default <|endoftext|>)");
  command->add_option("--min-count", flags->min_count, "Of a pair that becomes a token; 0 is as 1")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--threads", flags->threads, "That count (default: one for each core)")
      ->check(CLI::Range(1, 1024));
  command->add_flag("--overwrite", flags->overwrite, "Replace an existing output");
  command->callback([=, options = context.options, run = context.run] {
    *run = [=] { return RunTrain(*flags, *options); };
  });
}

// encode, decode, inspect: a tokenizer, and for the first two a text.
CLI::App* AddTextVerb(CLI::App* parent, const std::string& name, const std::string& help,
                      const std::string& file_help, TextFlags* flags) {
  CLI::App* command = parent->add_subcommand(name, help);
  AddTokenizerFlags(command, &flags->config);
  if (!file_help.empty()) command->add_option("file", flags->file, file_help);
  return command;
}

}  // namespace

void AddTokenizer(const CommandContext& context) {
  CLI::App* command = context.app->add_subcommand("tokenizer", "Train, try and inspect tokenizers")
                          ->require_subcommand(1);
  AddTrain(command, context);
  const auto encode = std::make_shared<TextFlags>();
  AddTextVerb(command, "encode", "Print the ids of a text", "Text file, or - for stdin",
              encode.get())
      ->callback([=, options = context.options, run = context.run] {
        *run = [=] { return RunEncode(*encode, *options); };
      });
  const auto decode = std::make_shared<TextFlags>();
  AddTextVerb(command, "decode", "Print the text of ids", "File of ids, or - for stdin",
              decode.get())
      ->callback([=, options = context.options, run = context.run] {
        *run = [=] { return RunDecode(*decode, *options); };
      });
  const auto inspect = std::make_shared<TextFlags>();
  AddTextVerb(command, "inspect", "Check a tokenizer and print its figures", "", inspect.get())
      ->callback([=, options = context.options, run = context.run] {
        *run = [=] { return RunInspect(*inspect, *options); };
      });
}

}  // namespace mt::client
