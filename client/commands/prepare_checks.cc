// Inputs are judged by their first bytes, not by their names.
#include "client/commands/prepare_checks.h"

#include <algorithm>
#include <filesystem>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "worker/data/prepare/input_list.h"
#include "worker/data/prepare/prepare.h"
#include "worker/data/prepare/text_input.h"

namespace mt::client {
namespace {

constexpr size_t kLooked = 1024;      // bytes of each input
constexpr size_t kMostLooked = 1000;  // inputs

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

// What can be told before the conversion; what cannot be read is left to it.
Status CheckInput(const std::string& path, data::DocumentRule rule) {
  const auto beginning = data::InputBeginning(path, kLooked);
  if (!beginning.ok())
    return absl::IsInvalidArgument(beginning.status()) ? beginning.status() : OkStatus();
  return CheckBeginning(path, *beginning, rule);
}

}  // namespace

Status CheckBeginning(const std::string& name, std::string_view beginning,
                      data::DocumentRule rule) {
  if (rule != data::DocumentRule::kWholeFile) return OkStatus();
  const std::string key = KeyOfJsonLines(std::string(beginning));
  if (key.empty()) return OkStatus();
  return base::InvalidArgument(
      "{} holds lines of JSON, whose braces and keys would be trained on: --jsonl-key {} takes the "
      "text of each line",
      name, key);
}

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
  const auto inputs = data::ListInputs(args.inputs);
  if (!inputs.ok()) return OkStatus();  // the conversion says it
  for (size_t i = 0; i < std::min(inputs->paths.size(), kMostLooked); ++i)
    RETURN_IF_ERROR(CheckInput(inputs->paths[i], args.rule));
  return OkStatus();
}

std::string PrepareNote(const data::PrepareStats& stats) {
  if (stats.documents != 1) return "";
  return "one document: data.split divides by documents, so a job has nothing to validate on; "
         "--separator TEXT makes a document of each record, more --input files one each";
}

}  // namespace mt::client
