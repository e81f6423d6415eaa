// What is no digest is none, since it becomes part of a path.
#include "worker/checkpoint/inspect/saved_tokenizer.h"

#include <fmt/format.h>

#include "common/base/ids.h"

namespace mt::checkpoint {

std::optional<SavedTokenizer> TokenizerOf(const Manifest& manifest) {
  const auto type = manifest.facts.find(kTokenizerTypeFact);
  const auto digest = manifest.facts.find(kTokenizerDigestFact);
  if (type == manifest.facts.end() || digest == manifest.facts.end()) return std::nullopt;
  if (!base::ParseHash128(digest->second)) return std::nullopt;
  return SavedTokenizer{.type = type->second, .digest = digest->second};
}

void PutTokenizer(const SavedTokenizer& tokenizer, Manifest* manifest) {
  manifest->facts[kTokenizerTypeFact] = tokenizer.type;
  manifest->facts[kTokenizerDigestFact] = tokenizer.digest;
}

std::string FolderName(const SavedTokenizer& tokenizer) {
  return fmt::format("tokenizer-{}", tokenizer.digest);
}

}  // namespace mt::checkpoint
