// Inputs are judged by their first bytes, not by their names.
#include "client/commands/prepare_checks.h"

#include <array>
#include <filesystem>
#include <fstream>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "worker/data/prepare.h"

namespace mt::client {
namespace {

constexpr size_t kLooked = 1024;  // bytes of each input

struct Packed {
  std::string_view magic, name, command;
};
constexpr Packed kPacked[] = {{"\x1F\x8B", "gzip", "gunzip -k"},
                              {"\x28\xB5\x2F\xFD", "zstd", "unzstd"},
                              {"\xFD"
                               "7zXZ",
                               "xz", "unxz -k"},
                              {"BZh", "bzip2", "bunzip2 -k"},
                              {"PK\x03\x04", "zip", "unzip"}};

std::string Beginning(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::array<char, kLooked> bytes{};
  file.read(bytes.data(), bytes.size());
  return {bytes.data(), static_cast<size_t>(file.gcount())};
}

// The key that most likely holds the text of a line: "text", "content", or else the one with the
// longest string; "" without strings.
std::string KeyOfText(const nlohmann::json& line) {
  std::string longest;
  size_t most = 0;
  for (const auto& [key, value] : line.items()) {
    if (!value.is_string()) continue;
    const size_t size = value.get_ref<const std::string&>().size();
    if (!longest.empty() && size <= most) continue;
    longest = key;
    most = size;
  }
  for (const char* usual : {"text", "content"}) {
    if (line.contains(usual) && line.at(usual).is_string()) return usual;
  }
  return longest;
}

// The key with the text of a file whose first line is a JSON object; "" for other files. Of a line
// that is longer than what was read, a brace and a quoted key are enough to tell: its longest
// string may not have been read, so the key is "KEY".
std::string KeyOfJsonLines(const std::string& beginning) {
  if (!beginning.starts_with('{')) return "";
  const auto line = nlohmann::json::parse(beginning.substr(0, beginning.find('\n')), nullptr,
                                          /*allow_exceptions=*/false);
  if (line.is_object()) return KeyOfText(line);
  const size_t open = beginning.find_first_not_of(" {");
  if (beginning.find('\n') != std::string::npos || open == std::string::npos ||
      beginning[open] != '"') {
    return "";
  }
  return beginning.find("\":", open + 1) == std::string::npos ? "" : "KEY";
}

Status CheckInput(const std::string& path, bool raw) {
  const std::string beginning = Beginning(path);
  for (const Packed& packed : kPacked) {
    if (!beginning.starts_with(packed.magic)) continue;
    return base::InvalidArgument("{} is compressed ({}): unpack it first, with {} {}", path,
                                 packed.name, packed.command, path);
  }
  const std::string key = raw ? KeyOfJsonLines(beginning) : "";
  if (key.empty()) return OkStatus();
  return base::InvalidArgument(
      "{} holds lines of JSON, whose braces and keys would be trained on: --jsonl-key {} takes the "
      "text of each line",
      path, key);
}

}  // namespace

Status CheckPrepare(const data::PrepareArgs& args, const std::string& tokenizer) {
  if (tokenizer == "null") {
    return base::InvalidArgument(
        "--tokenizer null makes no tokens of text: it is for jobs whose ids were made elsewhere; "
        "leave it out for bytes");
  }
  std::error_code error;
  if (args.output_prefix.ends_with('/') ||
      std::filesystem::is_directory(args.output_prefix, error)) {
    const std::string folder =
        args.output_prefix.substr(0, args.output_prefix.find_last_not_of('/') + 1);
    return base::InvalidArgument("--output {} is a folder: give a prefix in it, {}/text_document",
                                 args.output_prefix, folder);
  }
  for (const std::string& input : args.inputs)
    RETURN_IF_ERROR(CheckInput(input, args.rule == data::DocumentRule::kWholeFile));
  return OkStatus();
}

std::string PrepareNote(const data::PrepareStats& stats) {
  if (stats.documents != 1) return "";
  return "one document: data.split divides by documents, so a job has nothing to validate on; "
         "--separator TEXT makes a document of each record, more --input files one each";
}

}  // namespace mt::client
