// Splitters written by hand for the patterns of GPT-2 and of Llama 3, by which most text is cut
// into pieces before byte-pair encoding: the same pieces as the pattern gives, without a regular
// expression. Pure; thread-safe.
#pragma once

#include <string_view>

namespace mt::data {

inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// As Llama 3's, with each number character by itself (Qwen 2).
inline constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Each number character by itself, and each run of them: what the tokenizers library's Digits does.
inline constexpr std::string_view kDigitPattern = R"(\p{N})";
inline constexpr std::string_view kDigitsPattern = R"(\p{N}+)";

// The end of the piece that begins at `begin`; begin < end, and [begin, end) is valid UTF-8.
using FastSplitter = const char* (*)(const char* begin, const char* end);

// The splitter for the pattern; nullptr where there is none of our own.
FastSplitter FindFastSplitter(std::string_view pattern);

}  // namespace mt::data
