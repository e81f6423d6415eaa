// The digest alone tells tokenizers with files apart; names of files may differ between hosts.
#include "worker/data/tokenizer/record.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

#include <nlohmann/json.hpp>

#include "worker/data/tokenizer/plain_tokenizers.h"
#include "worker/data/tokenizer/tokenizer.h"

namespace mt::data {
namespace {

constexpr int64_t kVersion = 1;
// Of what a file says of its tokens' bytes: a token is a piece of text, and a vocabulary fits into
// memory many times.
constexpr int64_t kMaxTokenBytes = (int64_t{1} << 24) - 1;
constexpr int64_t kMaxTokens = int64_t{1} << 24;

StatusOr<int64_t> Integer(const nlohmann::json& root, const char* name) {
  const auto found = root.find(name);
  if (found == root.end() || !found->is_number_integer() ||
      (found->is_number_unsigned() &&
       found->get<uint64_t>() > uint64_t{std::numeric_limits<int32_t>::max()})) {
    return base::DataLoss("{} is not a number of a tokenizer", name);
  }
  return found->get<int64_t>();
}

// Runs of equal numbers, "256*1 2 3*4": a line of a few bytes a token, where an array would be a
// line each.
std::string RunsText(const std::vector<int32_t>& values) {
  std::string text;
  for (size_t i = 0; i < values.size();) {
    size_t end = i + 1;
    while (end < values.size() && values[end] == values[i]) ++end;
    if (!text.empty()) text += ' ';
    if (end - i > 1) text += fmt::format("{}*", end - i);
    text += std::to_string(values[i]);
    i = end;
  }
  return text;
}

// The number that `text` is, of at most `most`; -1 where it is none.
int64_t NumberIn(std::string_view text, int64_t most) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool number = error == std::errc() && end == text.data() + text.size();
  return number && value >= 0 && value <= most ? value : -1;
}

Status WrongSize(int64_t size) { return base::DataLoss("token_bytes is not of {} tokens", size); }

// `size` values from RunsText.
StatusOr<std::vector<int32_t>> ParseRuns(std::string_view text, int64_t size) {
  if (size > kMaxTokens) return base::DataLoss("token_bytes of more than {} tokens", kMaxTokens);
  std::vector<int32_t> values;
  values.reserve(static_cast<size_t>(size));
  while (!text.empty()) {
    const size_t word_end = std::min(text.find(' '), text.size());
    std::string_view word = text.substr(0, word_end);
    text.remove_prefix(std::min(word_end + 1, text.size()));
    int64_t count = 1;
    if (const size_t times = word.find('*'); times != std::string_view::npos) {
      count = NumberIn(word.substr(0, times), size);
      word.remove_prefix(times + 1);
    }
    const int64_t value = NumberIn(word, kMaxTokenBytes);
    if (count < 1 || value < 0) return base::DataLoss("token_bytes is no list of numbers");
    if (std::ssize(values) + count > size) return WrongSize(size);
    values.insert(values.end(), static_cast<size_t>(count), static_cast<int32_t>(value));
  }
  if (std::ssize(values) < size) return WrongSize(size);
  return values;
}

Status ReadTokenBytes(const nlohmann::json& root, TokenizerRecord* record) {
  if (record->type == "byte") {
    record->token_bytes = BytesOfByteTokens();
    return OkStatus();
  }
  const auto found = root.find("token_bytes");
  if (found == root.end()) return OkStatus();
  if (!found->is_string()) return base::DataLoss("token_bytes is not text");
  ASSIGN_OR_RETURN(record->token_bytes,
                   ParseRuns(found->get_ref<const std::string&>(), record->vocab_size));
  return OkStatus();
}

}  // namespace

TokenizerRecord RecordOfTokenizer(const Tokenizer& tokenizer) {
  std::vector<int32_t> bytes = tokenizer.token_bytes();
  // What no record can tell.
  if (std::ssize(bytes) > kMaxTokens ||
      std::ranges::any_of(bytes, [](int32_t n) { return n > kMaxTokenBytes; })) {
    bytes.clear();
  }
  return {.type = std::string(tokenizer.name()),
          .digest = tokenizer.digest(),
          .vocab_size = tokenizer.vocab_size(),
          .eod = tokenizer.eod(),
          .token_bytes = std::move(bytes)};
}

void SetEod(int32_t eod, TokenizerRecord* record) {
  record->eod = eod;
  std::vector<int32_t>& bytes = record->token_bytes;
  if (eod != kNoEod && eod < std::ssize(bytes)) bytes[static_cast<size_t>(eod)] = 0;
}

std::string RecordText(const TokenizerRecord& record) {
  return fmt::format("{} ({} tokens{}{})", record.type, record.vocab_size,
                     record.digest.empty() ? "" : ", digest ", record.digest);
}

std::string ToJson(const TokenizerRecord& record) {
  nlohmann::ordered_json root = {{"version", kVersion},
                                 {"type", record.type},
                                 {"digest", record.digest},
                                 {"vocab_size", record.vocab_size}};
  if (record.eod == kNoEod) {
    root["eod"] = nullptr;
  } else {
    root["eod"] = record.eod;
  }
  if (record.type != "byte" && !record.token_bytes.empty())
    root["token_bytes"] = RunsText(record.token_bytes);
  return root.dump(1) + "\n";
}

StatusOr<TokenizerRecord> ParseTokenizerRecord(std::string_view text) {
  const auto root = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!root.is_object()) return base::DataLoss("not a tokenizer's record");
  ASSIGN_OR_RETURN(const int64_t version, Integer(root, "version"));
  if (version != kVersion) {
    return base::DataLoss("a tokenizer's record of version {}; this program reads version {}",
                          version, kVersion);
  }
  TokenizerRecord record;
  for (const auto& [name, value] : {std::pair("type", &record.type), {"digest", &record.digest}}) {
    const auto found = root.find(name);
    if (found == root.end() || !found->is_string()) return base::DataLoss("{} is not text", name);
    *value = found->get<std::string>();
  }
  ASSIGN_OR_RETURN(record.vocab_size, Integer(root, "vocab_size"));
  const auto eod = root.find("eod");
  if (eod != root.end() && !eod->is_null()) {
    ASSIGN_OR_RETURN(const int64_t id, Integer(root, "eod"));
    if (id < 0) return base::DataLoss("eod {} is no id", id);
    record.eod = static_cast<int32_t>(id);
  }
  if (record.type.empty() || record.vocab_size < 1 || record.eod >= record.vocab_size)
    return base::DataLoss("vocab_size {} does not hold eod {}", record.vocab_size, record.eod);
  RETURN_IF_ERROR(ReadTokenBytes(root, &record));
  return record;
}

std::string RecordPath(std::string_view prefix) { return fmt::format("{}.tokenizer.json", prefix); }

Status WriteTokenizerRecord(const std::string& prefix, const TokenizerRecord& record) {
  return base::WriteFileAtomic(RecordPath(prefix), ToJson(record));
}

StatusOr<std::optional<TokenizerRecord>> ReadTokenizerRecord(const std::string& prefix,
                                                             const base::FileOpener& open) {
  const std::string path = RecordPath(prefix);
  const auto text = base::ReadFile(path, open);
  if (absl::IsNotFound(text.status())) return std::optional<TokenizerRecord>();
  RETURN_IF_ERROR(text.status());
  const auto record = ParseTokenizerRecord(*text);
  if (!record.ok()) {
    return base::DataLoss(
        "{}: {}; make the data set anew, or remove the file if the job's "
        "tokenizer is known to be the data's",
        path, base::Message(record.status()));
  }
  return std::optional<TokenizerRecord>(*record);
}

Status CheckSameTokenizer(const TokenizerRecord& data, const TokenizerRecord& job,
                          std::string_view prefix) {
  if (job.type == "null") return OkStatus();
  if (data.type == job.type && data.digest == job.digest) return OkStatus();
  return base::FailedPrecondition(
      "data.tokenizer: the tokens of {} were made by {}, the job's tokenizer is {}; leave "
      "data.tokenizer out to use the data's, or prepare the data with the job's",
      prefix, RecordText(data), RecordText(job));
}

}  // namespace mt::data
