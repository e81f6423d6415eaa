// Files are opened as data sets are: below the data root, whatever links lie there.
#include "worker/train/job_data/job_tokenizer.h"

#include <algorithm>
#include <set>
#include <vector>

#include "common/spec/presets.h"
#include "common/spec/roots.h"
#include "megatrain/v1/job.pb.h"
#include "worker/data/tokenizer.h"
#include "worker/train/job_data/data_paths.h"

namespace mt::train {
namespace {

using megatrain::v1::Data;
using megatrain::v1::JobSpec;

std::string_view TypeText(Data::Tokenizer::Type type) {
  switch (type) {
    case Data::Tokenizer::TYPE_BYTE:
      return "byte";
    case Data::Tokenizer::TYPE_NULL:
      return "null";
    case Data::Tokenizer::TYPE_GPT2_BPE:
      return "gpt2_bpe";
    case Data::Tokenizer::TYPE_HF:
      return "hf";
    case Data::Tokenizer::TYPE_SENTENCEPIECE:
      return "sentencepiece";
    default:
      return "";
  }
}

// The absolute prefixes of all data sets of the job, each once.
StatusOr<std::vector<std::string>> Prefixes(const std::string& data_root, const JobSpec& job) {
  std::vector<std::string> prefixes;
  std::set<std::string> seen;
  for (const spec::Split split : {spec::Split::kTrain, spec::Split::kValid, spec::Split::kTest}) {
    ASSIGN_OR_RETURN(const data::DataPath path, DataPathOf(data_root, job, split));
    for (const data::DataMember& member : path) {
      if (seen.insert(member.prefix).second) prefixes.push_back(member.prefix);
    }
  }
  return prefixes;
}

struct FoundRecord {
  std::string prefix;
  data::TokenizerRecord record;
};

StatusOr<std::vector<FoundRecord>> RecordsOf(const std::string& data_root, const JobSpec& job) {
  std::vector<FoundRecord> found;
  ASSIGN_OR_RETURN(const std::vector<std::string> prefixes, Prefixes(data_root, job));
  for (const std::string& prefix : prefixes) {
    ASSIGN_OR_RETURN(const auto record,
                     data::ReadTokenizerRecord(prefix, spec::BelowRoot(data_root)));
    if (record) found.push_back({.prefix = prefix, .record = *record});
  }
  return found;
}

// The one that tells the bytes of tokens, which those of earlier versions do not; `found` has one.
const data::TokenizerRecord& FullestOf(const std::vector<FoundRecord>& found) {
  const auto full = std::ranges::find_if(
      found, [](const FoundRecord& of) { return !of.record.token_bytes.empty(); });
  return full == found.end() ? found.front().record : full->record;
}

std::string EndText(const data::TokenizerRecord& record) {
  return record.eod == data::kNoEod ? "no id" : fmt::format("id {}", record.eod);
}

// OK where all data sets are of one tokenizer, its end-of-document token included, which `mtctl
// data prepare --eod` chooses and the digest does not tell.
Status CheckOneTokenizer(const std::vector<FoundRecord>& found) {
  for (const FoundRecord& of : found) {
    const FoundRecord& first = found.front();
    if (of.record == first.record) continue;
    data::TokenizerRecord same_end = of.record;
    same_end.eod = first.record.eod;
    if (same_end == first.record) {
      return base::FailedPrecondition(
          "data: documents end with {} in {} and with {} in {}, though {} made both; a job's data "
          "have one end-of-document token: prepare one of them anew with the --eod of the other; a "
          "run that has read both goes on as it did without {}, since ids without a record are "
          "taken as they are",
          EndText(first.record), first.prefix, EndText(of.record), of.prefix,
          data::RecordText(first.record), data::RecordPath(of.prefix));
    }
    return base::FailedPrecondition(
        "data: the tokens of {} were made by {}, those of {} by {}; a job's data are of one "
        "tokenizer",
        first.prefix, data::RecordText(first.record), of.prefix, data::RecordText(of.record));
  }
  return OkStatus();
}

StatusOr<data::TokenizerConfig> ConfigOf(const std::string& data_root, const JobSpec& job) {
  const Data::Tokenizer& tokenizer = job.data().tokenizer();
  data::TokenizerConfig config;
  config.type = TypeText(tokenizer.type());
  config.vocab_size = job.model().vocab_size();
  config.open = spec::BelowRoot(data_root);
  for (const auto& [given, path] : {std::pair(&tokenizer.file(), &config.file),
                                    {&tokenizer.vocab(), &config.vocab},
                                    {&tokenizer.merges(), &config.merges}}) {
    if (given->empty()) continue;
    RETURN_IF_ERROR(spec::CheckRelative(*given));
    *path = base::JoinPath(data_root, *given);
  }
  return config;
}

}  // namespace

StatusOr<std::optional<data::TokenizerRecord>> FindJobTokenizer(const std::string& data_root,
                                                                const JobSpec& job) {
  std::optional<data::TokenizerRecord> chosen;
  if (job.data().mock() || data_root.empty()) return chosen;
  ASSIGN_OR_RETURN(const std::vector<FoundRecord> found, RecordsOf(data_root, job));
  if (job.data().tokenizer().has_type()) {
    ASSIGN_OR_RETURN(const data::TokenizerConfig config, ConfigOf(data_root, job));
    const data::TokenizerRecord* known = found.empty() ? nullptr : &FullestOf(found);
    const auto record = data::RecordOf(config, known);
    if (!record.ok()) return base::Annotate(record.status(), "data.tokenizer");
    for (const FoundRecord& of : found)
      RETURN_IF_ERROR(data::CheckSameTokenizer(of.record, *record, of.prefix));
    // Ids are taken as they are, whatever made them.
    if (record->type != TypeText(Data::Tokenizer::TYPE_NULL))
      RETURN_IF_ERROR(CheckOneTokenizer(found));
    chosen = *record;
    return chosen;
  }
  RETURN_IF_ERROR(CheckOneTokenizer(found));
  if (!found.empty()) chosen = FullestOf(found);
  return chosen;
}

Status SettleVocabulary(const std::string& data_root, JobSpec* job) {
  ASSIGN_OR_RETURN(const std::optional<data::TokenizerRecord> record,
                   FindJobTokenizer(data_root, *job));
  // So that a checkpoint tells it; the others need files.
  if (record && record->type == TypeText(Data::Tokenizer::TYPE_BYTE))
    job->mutable_data()->mutable_tokenizer()->set_type(Data::Tokenizer::TYPE_BYTE);
  megatrain::v1::Model& model = *job->mutable_model();
  if (model.has_vocab_size()) {
    if (!record || record->type == "null" || model.vocab_size() >= record->vocab_size)
      return OkStatus();
    return base::InvalidArgument("model.vocab_size: {} is less than the {} tokens of {}",
                                 model.vocab_size(), record->vocab_size, data::RecordText(*record));
  }
  const spec::Preset* const preset = spec::FindPreset(model.preset());
  const int64_t size = record ? record->vocab_size : preset != nullptr ? preset->vocab_size : 0;
  if (size > 0) {
    model.set_vocab_size(size);
    return OkStatus();
  }
  return base::InvalidArgument(
      "model.vocab_size: required: neither the job nor a record beside its data ({}) tells the "
      "tokenizer",
      data::RecordPath("PREFIX"));
}

}  // namespace mt::train
