// What published scores do to texts before they are tokens, and how they count words and
// characters: WikiText's pages by the rules of EleutherAI's evaluation harness, HellaSwag's
// sentences by the same, white space as Python has it. Texts are valid UTF-8 (unchecked). Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace mt::decode {

// The text without white space at either end.
std::string_view Stripped(std::string_view text);
// Bytes of white space at the end.
size_t TrailingSpace(std::string_view text);
// What is between runs of white space, the empty pieces at either end included: " a b " has 4.
int64_t CountWords(std::string_view text);
// Code points.
int64_t CountCharacters(std::string_view text);

// The pages of WikiText's raw files: each begins with the line of a heading of the first level (" =
// Title = "), without the line feed before the next one. Blank ones are none.
std::vector<std::string> WikitextPages(std::string_view file);
// A page as it is scored: "the 4 @-@ 4 ( sic ) ." becomes "the 4-4 (sic).".
std::string DetokenizedWikitext(std::string_view page);

// A context or an ending of HellaSwag: " [title]" becomes ". ", other brackets go.
std::string CleanHellaswag(std::string_view text);
// The first letter large, all others small. kInvalidArgument: a letter beyond U+017F, of which this
// does not know the two forms (letters of East Asia have one).
StatusOr<std::string> Capitalized(std::string_view text);

}  // namespace mt::decode
