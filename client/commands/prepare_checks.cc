// Inputs are judged by their first bytes, not by their names. What begins like JSON may be damaged
// further on; an object needs a key to look like one, since text may begin with a brace.
#include "client/commands/prepare_checks.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <pthread.h>
#include <string_view>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/base/mutex.h"
#include "worker/data/prepare/input_list.h"
#include "worker/data/prepare/prepare.h"
#include "worker/data/prepare/text_input.h"

namespace mt::client {
namespace {

using nlohmann::json;

constexpr size_t kLooked = size_t{1} << 10;     // bytes of each input
constexpr size_t kMostBlank = size_t{1} << 20;  // where the first are blank
constexpr size_t kMostThreads = 16;
constexpr size_t kMostNested = 64;  // no list of texts has more brackets in each other
constexpr std::string_view kBlank = " \t\r\n";

enum class JsonForm {
  kNone,
  kLines,    // an object on each line
  kObject,   // an object over several lines
  kObjects,  // a list of objects
  kList,     // a list of other things
};

std::string_view SkipBlanks(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(kBlank), text.size()));
  return text;
}

std::string_view SkipMark(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  return SkipBlanks(text);
}

// The place behind the string that begins there; npos where it does not end.
size_t EndOfString(std::string_view text, size_t at) {
  for (++at; at < text.size() && text[at] != '"'; ++at) {
    if (text[at] == '\n') return std::string_view::npos;
    if (text[at] == '\\') ++at;
  }
  return at < text.size() ? at + 1 : std::string_view::npos;
}

// An object with a key, perhaps behind some that are empty.
bool BeginsObject(std::string_view text) {
  while (text.starts_with('{')) {
    text = SkipBlanks(text.substr(1));
    if (text.starts_with('}')) {
      text = SkipBlanks(text.substr(1));
      continue;
    }
    const size_t end = text.starts_with('"') ? EndOfString(text, 0) : std::string_view::npos;
    return end != std::string_view::npos && SkipBlanks(text.substr(end)).starts_with(':');
  }
  return false;
}

// How far a list goes that begins `text`.
struct ListSpan {
  size_t end = std::string_view::npos;    // behind its bracket
  size_t comma = std::string_view::npos;  // the last one outside of strings
  std::string open{};                     // what would close it there
};
ListSpan SpanOf(std::string_view text) {
  ListSpan span;
  std::string open;  // the innermost first
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '"') {
      at = EndOfString(text, at);
      if (at == std::string_view::npos) return span;
      --at;
    } else if (c == '[' || c == '{') {
      if (open.size() == kMostNested) return span;
      open.insert(open.begin(), c == '[' ? ']' : '}');
    } else if (c == ']' || c == '}') {
      open.erase(0, 1);
      if (!open.empty()) continue;
      span.end = at + 1;
      return span;
    } else if (c == ',') {
      span.comma = at;
      span.open = open;
    }
  }
  return span;
}

// `text` begins with a bracket, as references and headings do: it has to be JSON as far as it goes.
bool BeginsList(std::string_view text, bool is_all) {
  const ListSpan span = SpanOf(text);
  if (span.end != std::string_view::npos) {
    const std::string_view rest = text.substr(span.end);
    const std::string_view next = SkipBlanks(rest);
    const bool alone = next.empty() || rest.substr(0, rest.size() - next.size()).find('\n') !=
                                           std::string_view::npos;
    const bool more = next.empty() || next.front() == '[' || next.front() == '{';
    return alone && more && span.end > 2 && json::accept(text.substr(0, span.end));
  }
  if (is_all) return false;
  if (span.comma == std::string_view::npos) {
    const bool is_string = SkipBlanks(text.substr(1)).starts_with('"');
    return is_string && text.find('\n', text.find('"')) == std::string_view::npos;
  }
  const std::string_view last = SkipBlanks(text.substr(span.comma + 1));
  const bool whole = last.starts_with('"') || last.starts_with('[') || last.starts_with('{') ||
                     last.find_first_of(kBlank) == std::string_view::npos;
  return whole && json::accept(std::string(text.substr(0, span.comma)) + span.open);
}

JsonForm FormOf(std::string_view text, bool is_all) {
  if (text.starts_with('[')) {
    if (BeginsObject(SkipBlanks(text.substr(1)))) return JsonForm::kObjects;
    return BeginsList(text, is_all) ? JsonForm::kList : JsonForm::kNone;
  }
  if (!BeginsObject(text)) return JsonForm::kNone;
  const size_t end = text.find('\n');
  if (end == std::string_view::npos) return JsonForm::kLines;
  return json::accept(text.substr(0, end)) ? JsonForm::kLines : JsonForm::kObject;
}

// The key that most likely holds the text of a line: "text", "content", or else the one with the
// longest string. "KEY" for a line that has none, or is longer than what was read.
std::string KeyOfText(std::string_view text) {
  const auto line = json::parse(text.substr(0, text.find('\n')), nullptr,
                                /*allow_exceptions=*/false);
  std::string longest = "KEY";
  if (!line.is_object()) return longest;
  size_t most = 0;
  for (const auto& [key, value] : line.items()) {
    if (!value.is_string()) continue;
    const size_t size = value.get_ref<const std::string&>().size();
    if (size < most || (size == most && longest != "KEY")) continue;
    longest = key;
    most = size;
  }
  for (const char* usual : {"text", "content"}) {
    if (line.contains(usual) && line.at(usual).is_string()) return usual;
  }
  return longest;
}

// `is_all`: nothing follows `beginning`.
Status CheckBeginning(const std::string& name, std::string_view beginning, bool is_all) {
  const std::string_view text = SkipMark(beginning);
  std::string held = "JSON", advice;
  switch (FormOf(text, is_all)) {
    case JsonForm::kNone:
      return OkStatus();
    case JsonForm::kLines:
      held = "lines of JSON";
      advice = fmt::format("--jsonl-key {} takes the text of each line", KeyOfText(text));
      break;
    case JsonForm::kObject:
      advice = "make a line of each object, with jq -c . FILE > lines.jsonl, and give --jsonl-key";
      break;
    case JsonForm::kObjects:
      advice =
          "make a line of each object, with jq -c '.[]' FILE > lines.jsonl, and give "
          "--jsonl-key";
      break;
    case JsonForm::kList:
      advice =
          "make a line of each item, with jq -c '.[] | {text: .}' FILE > lines.jsonl, and "
          "give --jsonl-key text";
      break;
  }
  return base::InvalidArgument(
      "{} holds {}, whose signs and keys would be trained on: {}; --allow-json takes it as text",
      name, held, advice);
}

bool AsksForText(const data::PrepareArgs& args, const PrepareConsent& consent) {
  return args.rule != data::DocumentRule::kJsonLines && !consent.json;
}

// What can be told before the conversion; what cannot be read is left to it.
Status CheckInput(const std::string& path, bool as_text) {
  for (const size_t bytes : {kLooked, kMostBlank}) {
    const auto beginning = data::InputBeginning(path, bytes);
    if (!beginning.ok())
      return absl::IsInvalidArgument(beginning.status()) ? beginning.status() : OkStatus();
    const bool is_all = beginning->size() < bytes;
    if (!as_text) return OkStatus();
    const std::string_view text = SkipMark(*beginning);
    if (!is_all && text.empty()) continue;
    // No more behind the blanks either: what SpanOf does grows faster than the text.
    return CheckBeginning(path, text.substr(0, kLooked), is_all && text.size() <= kLooked);
  }
  return OkStatus();
}

// The first refusal in the order of the inputs. Several look at once: opening a file of a file
// system far away takes its time.
Status CheckInputs(const std::vector<std::string>& paths, bool as_text) {
  std::atomic<size_t> next = 0;
  base::Mutex mutex;
  size_t first = paths.size();
  Status refusal;
  const auto look = [&] {
    for (size_t i = next++; i < paths.size(); i = next++) {
      const Status status = CheckInput(paths[i], as_text);
      if (status.ok()) continue;
      next = paths.size();  // those before it are in hand
      const base::MutexLock lock(&mutex);
      if (i < first) refusal = status;
      first = std::min(first, i);
    }
  };
  std::vector<std::thread> threads;
  while (threads.size() < std::min(kMostThreads - 1, paths.size() / 64)) {
    threads.emplace_back([&] {
      ::pthread_setname_np(::pthread_self(), "mt-look");
      look();
    });
  }
  look();
  for (std::thread& thread : threads) thread.join();
  return refusal;
}

Status OneDocument(const std::string& name) {
  return base::InvalidArgument("{}: {}", name, data::kOneDocument);
}

// The only file of them that holds text would be one document.
Status CheckOneDocument(const data::InputList& inputs) {
  const auto filled = [](int64_t bytes) { return bytes > 0; };
  if (std::ranges::count_if(inputs.bytes, filled) != 1) return OkStatus();
  const auto one = std::ranges::find_if(inputs.bytes, filled) - inputs.bytes.begin();
  const std::string& path = inputs.paths[static_cast<size_t>(one)];
  const auto beginning = data::InputBeginning(path, 1);
  return beginning.ok() && !beginning->empty() ? OneDocument(path) : OkStatus();
}

}  // namespace

Status CheckPrepare(const data::PrepareArgs& args, const std::string& tokenizer,
                    const PrepareConsent& consent) {
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
  RETURN_IF_ERROR(CheckInputs(inputs->paths, AsksForText(args, consent)));
  // Standard input is judged when it is there.
  if (consent.one_document || inputs->has_standard_input ||
      args.rule != data::DocumentRule::kWholeFile) {
    return OkStatus();
  }
  return CheckOneDocument(*inputs);
}

Status CheckStandardInput(const data::PrepareArgs& args, std::string_view beginning,
                          const PrepareConsent& consent) {
  constexpr char kName[] = "standard input";
  if (AsksForText(args, consent)) {
    const bool is_all = beginning.size() < data::kJudgedBytes;
    RETURN_IF_ERROR(CheckBeginning(kName, beginning, is_all));
  }
  const bool one =
      !beginning.empty() && args.inputs.size() == 1 && args.rule == data::DocumentRule::kWholeFile;
  return one && !consent.one_document ? OneDocument(kName) : OkStatus();
}

}  // namespace mt::client
