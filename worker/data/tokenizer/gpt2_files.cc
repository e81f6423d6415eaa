// The merges are lines of two tokens; a first line with a version is passed over.
#include "worker/data/tokenizer/gpt2_files.h"

#include <nlohmann/json.hpp>

#include "worker/data/tokenizer/fast_splitters.h"
#include "worker/data/tokenizer/vocabulary.h"

namespace mt::data {
namespace {

Status ReadMerges(std::string_view text, const Vocabulary& vocabulary, BpeTables* tables) {
  for (int64_t line_number = 1; !text.empty(); ++line_number) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || (line_number == 1 && line.starts_with("#version"))) continue;
    const size_t space = line.find(' ');
    if (space == 0 || space == std::string_view::npos || space + 1 == line.size() ||
        line.find(' ', space + 1) != std::string_view::npos) {
      return base::InvalidArgument("line {}: expected two tokens with a space between them",
                                   line_number);
    }
    const Status added = vocabulary.AddMerge(line.substr(0, space), line.substr(space + 1), tables);
    if (!added.ok()) return base::Annotate(added, fmt::format("line {}", line_number));
  }
  return OkStatus();
}

StatusOr<Vocabulary> ReadVocabulary(std::string_view text, BpeTables* tables) {
  ASSIGN_OR_RETURN(const nlohmann::json json, ParseJsonText(text));
  ASSIGN_OR_RETURN(Vocabulary vocabulary, Vocabulary::FromJson(json));
  RETURN_IF_ERROR(vocabulary.FillTokens({}, tables));
  return vocabulary;
}

}  // namespace

StatusOr<BpeParts> ParseGpt2Files(std::string_view vocab, std::string_view merges) {
  BpeParts parts;
  parts.name = "gpt2_bpe";
  parts.patterns = {std::string(kGpt2Pattern)};
  const StatusOr<Vocabulary> vocabulary = ReadVocabulary(vocab, &parts.tables);
  if (!vocabulary.ok()) return base::Annotate(vocabulary.status(), "vocab.json");
  const Status read = ReadMerges(merges, *vocabulary, &parts.tables);
  if (!read.ok()) return base::Annotate(read, "merges.txt");
  return parts;
}

}  // namespace mt::data
