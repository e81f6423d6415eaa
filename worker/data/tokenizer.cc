// From a type and its files to a tokenizer. The digest of a tokenizer with files is that of their
// bytes, GPT-2's two with their sizes between them.
#include "worker/data/tokenizer.h"

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "common/base/ids.h"
#include "worker/data/tokenizer/bpe_tokenizer.h"
#include "worker/data/tokenizer/gpt2_files.h"
#include "worker/data/tokenizer/hf_file.h"
#include "worker/data/tokenizer/plain_tokenizers.h"
#include "worker/data/tokenizer/sentencepiece.h"

namespace mt::data {
namespace {

constexpr std::array<std::string_view, 5> kTypes = {"byte", "null", "gpt2_bpe", "hf",
                                                    "sentencepiece"};

// The files that the type is made of, and what is said where one is missing or of no use.
Status CheckFiles(const TokenizerConfig& config) {
  const std::string_view type = config.type;
  const bool one = type == "hf" || type == "sentencepiece";
  const bool two = type == "gpt2_bpe";
  struct Field {
    std::string_view name;
    const std::string* path;
    bool wanted;
  };
  for (const Field& field : {Field{"file", &config.file, one},
                             {"vocab", &config.vocab, two},
                             {"merges", &config.merges, two}}) {
    if (field.wanted == !field.path->empty()) continue;
    if (field.wanted)
      return base::InvalidArgument("tokenizer {}: its {} is missing", type, field.name);
    return base::InvalidArgument("tokenizer {}: it takes no {} ({})", type, field.name,
                                 *field.path);
  }
  return OkStatus();
}

// Type checked, "ids" by its other name.
StatusOr<TokenizerConfig> Checked(TokenizerConfig config) {
  config.type = TypeOfName(config.type);
  if (std::ranges::find(kTypes, config.type) == kTypes.end()) {
    return base::InvalidArgument(
        "tokenizer type '{}': unknown; byte, null (or ids), gpt2_bpe, hf and sentencepiece are "
        "supported",
        config.type);
  }
  RETURN_IF_ERROR(CheckFiles(config));
  if (!config.eod.empty() && config.type != "hf" && config.type != "gpt2_bpe") {
    return base::InvalidArgument(
        "tokenizer {}: its end-of-document token is the type's own and cannot be named ({})",
        config.type, config.eod);
  }
  if (config.type == "null" &&
      (config.vocab_size < 2 || config.vocab_size > int64_t{std::numeric_limits<int32_t>::max()})) {
    return base::InvalidArgument(
        "the null tokenizer needs a vocabulary of 2 ... 2^31 - 1 ids, the last of them EOD; got {}",
        config.vocab_size);
  }
  return config;
}

struct Files {
  std::vector<std::string> texts;  // as the type has them
  std::string digest;
};

StatusOr<Files> ReadFiles(const TokenizerConfig& config) {
  Files files;
  base::Hash128 hash;
  for (const std::string* path : {&config.file, &config.vocab, &config.merges}) {
    if (path->empty()) continue;
    ASSIGN_OR_RETURN(std::string text, base::ReadFile(*path, config.open));
    if (!files.texts.empty()) hash.Add(fmt::format("\n{}\n", files.texts.back().size()));
    hash.Add(text);
    files.texts.push_back(std::move(text));
  }
  files.digest = hash.Take();
  return files;
}

StatusOr<std::unique_ptr<Tokenizer>> MakeOf(const TokenizerConfig& config, Files files) {
  if (config.type == "sentencepiece")
    return MakeSentencePiece(files.texts[0], std::move(files.digest));
  StatusOr<BpeParts> parts = config.type == "hf" ? ParseHfFile(files.texts[0])
                                                 : ParseGpt2Files(files.texts[0], files.texts[1]);
  RETURN_IF_ERROR(parts.status());
  files.texts.clear();
  parts->digest = std::move(files.digest);
  parts->eod = config.eod;
  return MakeBpeTokenizer(*std::move(parts));
}

StatusOr<std::unique_ptr<Tokenizer>> MakeFromFiles(const TokenizerConfig& config, Files files) {
  auto made = MakeOf(config, std::move(files));
  if (made.ok()) return made;
  const std::string paths =
      config.file.empty() ? fmt::format("{} and {}", config.vocab, config.merges) : config.file;
  return base::Annotate(made.status(), paths);
}

// The files of the type in the order of their digest: what the config says, and under which name
// one is kept.
struct KeptFile {
  std::string TokenizerConfig::*path;
  std::string_view name;
};
std::vector<KeptFile> KeptFiles(std::string_view type) {
  if (type == "hf") return {{&TokenizerConfig::file, "tokenizer.json"}};
  if (type == "sentencepiece") return {{&TokenizerConfig::file, "tokenizer.model"}};
  if (type == "gpt2_bpe")
    return {{&TokenizerConfig::vocab, "vocab.json"}, {&TokenizerConfig::merges, "merges.txt"}};
  return {};
}

}  // namespace

std::string KeptTokenizerName(std::string_view digest) {
  return fmt::format("tokenizer-{}", digest);
}

Status KeepTokenizer(const TokenizerConfig& given, std::string_view digest,
                     const std::string& directory) {
  ASSIGN_OR_RETURN(const TokenizerConfig config, Checked(given));
  if (digest.empty() || FindKeptTokenizer(config.type, digest, directory)) return OkStatus();
  ASSIGN_OR_RETURN(const Files files, ReadFiles(config));
  if (files.digest != digest) {
    return base::FailedPrecondition("the files of the {} tokenizer have changed: digest {}, not {}",
                                    config.type, files.digest, digest);
  }
  const std::string folder = base::JoinPath(directory, KeptTokenizerName(digest));
  RETURN_IF_ERROR(base::MakeDirs(folder));
  const std::vector<KeptFile> kept = KeptFiles(config.type);
  for (size_t i = 0; i < kept.size(); ++i)
    RETURN_IF_ERROR(base::WriteFileAtomic(base::JoinPath(folder, kept[i].name), files.texts[i]));
  return OkStatus();
}

std::optional<TokenizerConfig> FindKeptTokenizer(std::string_view type, std::string_view digest,
                                                 const std::string& directory) {
  const std::vector<KeptFile> kept = KeptFiles(type);
  if (kept.empty() || digest.empty()) return std::nullopt;
  const std::string folder = base::JoinPath(directory, KeptTokenizerName(digest));
  TokenizerConfig config{.type = std::string(type)};
  for (const KeptFile& file : kept) {
    config.*file.path = base::JoinPath(folder, file.name);
    if (!base::Exists(config.*file.path)) return std::nullopt;
  }
  return config;
}

std::string_view TypeOfName(std::string_view type) { return type == "ids" ? "null" : type; }

StatusOr<std::unique_ptr<Tokenizer>> MakeTokenizer(const TokenizerConfig& given) {
  ASSIGN_OR_RETURN(const TokenizerConfig config, Checked(given));
  if (config.type == "byte") return MakeByteTokenizer();
  if (config.type == "null") return MakeNullTokenizer(config.vocab_size);
  ASSIGN_OR_RETURN(Files files, ReadFiles(config));
  return MakeFromFiles(config, std::move(files));
}

StatusOr<TokenizerRecord> RecordOf(const TokenizerConfig& given, const TokenizerRecord* known) {
  ASSIGN_OR_RETURN(const TokenizerConfig config, Checked(given));
  std::unique_ptr<Tokenizer> made;
  if (config.type == "byte") {
    made = MakeByteTokenizer();
  } else if (config.type == "null") {
    made = MakeNullTokenizer(config.vocab_size);
  } else {
    ASSIGN_OR_RETURN(Files files, ReadFiles(config));
    const bool is_known = known != nullptr && known->type == config.type &&
                          known->digest == files.digest && config.eod.empty();
    if (is_known && !known->token_bytes.empty()) return *known;
    ASSIGN_OR_RETURN(made, MakeFromFiles(config, std::move(files)));
    if (is_known) {
      TokenizerRecord record = RecordOfTokenizer(*made);
      SetEod(known->eod, &record);
      return record;
    }
  }
  return RecordOfTokenizer(*made);
}

}  // namespace mt::data
