// The digest alone tells tokenizers with files apart; names of files may differ between hosts.
#include "worker/data/tokenizer/record.h"

#include <limits>

#include <nlohmann/json.hpp>

#include "worker/data/tokenizer/tokenizer.h"

namespace mt::data {
namespace {

constexpr int64_t kVersion = 1;

StatusOr<int64_t> Integer(const nlohmann::json& root, const char* name) {
  const auto found = root.find(name);
  if (found == root.end() || !found->is_number_integer() ||
      (found->is_number_unsigned() &&
       found->get<uint64_t>() > uint64_t{std::numeric_limits<int32_t>::max()})) {
    return base::DataLoss("{} is not a number of a tokenizer", name);
  }
  return found->get<int64_t>();
}

}  // namespace

TokenizerRecord RecordOfTokenizer(const Tokenizer& tokenizer) {
  return {.type = std::string(tokenizer.name()),
          .digest = tokenizer.digest(),
          .vocab_size = tokenizer.vocab_size(),
          .eod = tokenizer.eod()};
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
