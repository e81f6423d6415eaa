// Files are opened as data sets are: below the data root, whatever links lie there.
#include "worker/train/job_data/job_tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>
#include <vector>

#include "common/base/log.h"
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

// What records of one tokenizer tell together: the first one's end of documents, and the bytes of
// tokens, which those of earlier versions do not tell. nullopt: there is none.
std::optional<data::TokenizerRecord> Together(const std::vector<FoundRecord>& found) {
  if (found.empty()) return std::nullopt;
  const auto full = std::ranges::find_if(
      found, [](const FoundRecord& of) { return !of.record.token_bytes.empty(); });
  data::TokenizerRecord known = full == found.end() ? found.front().record : full->record;
  data::SetEod(found.front().record.eod, &known);
  return known;
}

std::string EndText(const data::TokenizerRecord& record) {
  return record.eod == data::kNoEod ? "no id" : fmt::format("id {}", record.eod);
}

// The first data set whose documents end with another token than those of the first of all, which
// `mtctl data prepare --eod` chooses and the digest does not tell; nullptr: none.
const FoundRecord* OtherEnd(const std::vector<FoundRecord>& found) {
  const auto other = std::ranges::find_if(
      found, [&](const FoundRecord& of) { return of.record.eod != found.front().record.eod; });
  return other == found.end() ? nullptr : &*other;
}

// For a field that acts on one end-of-document token.
Status CheckOneEnd(const std::vector<FoundRecord>& found, std::string_view field) {
  const FoundRecord* const other = OtherEnd(found);
  if (other == nullptr) return OkStatus();
  const FoundRecord& first = found.front();
  return base::FailedPrecondition(
      "{}: documents end with {} in {} and with {} in {}, though {} made both, and it goes by one "
      "token alone: prepare one of them anew with the --eod of the other, or leave {} out; a run "
      "that has read both goes on as it did without {}, since ids without a record are taken as "
      "they are",
      field, EndText(first.record), first.prefix, EndText(other->record), other->prefix,
      data::RecordText(first.record), field, data::RecordPath(other->prefix));
}

// OK where all data sets are of one tokenizer, whatever ends their documents.
Status CheckOneTokenizer(const std::vector<FoundRecord>& found) {
  for (const FoundRecord& of : found) {
    const FoundRecord& first = found.front();
    data::TokenizerRecord same_end = of.record;
    same_end.eod = first.record.eod;
    if (same_end == first.record) continue;
    return base::FailedPrecondition(
        "data: the tokens of {} were made by {}, those of {} by {}; a job's data are of one "
        "tokenizer",
        first.prefix, data::RecordText(first.record), of.prefix, data::RecordText(of.record));
  }
  return OkStatus();
}

// Of a job whose tokenizer takes part: ids are taken as they are, whatever made them.
Status CheckAll(const std::vector<FoundRecord>& found, const JobSpec& job) {
  RETURN_IF_ERROR(CheckOneTokenizer(found));
  if (job.data().eod_mask_loss()) RETURN_IF_ERROR(CheckOneEnd(found, "data.eod_mask_loss"));
  if (job.data().reset_positions()) RETURN_IF_ERROR(CheckOneEnd(found, "data.reset_positions"));
  return OkStatus();
}

bool IsOfIds(const JobSpec& job) {
  return job.data().tokenizer().type() == Data::Tokenizer::TYPE_NULL;
}

// Training needs no end-of-document token where no field goes by it, but the model learns two.
Status SayOtherEnd(const std::string& data_root, const JobSpec& job) {
  if (job.data().mock() || data_root.empty() || IsOfIds(job)) return OkStatus();
  ASSIGN_OR_RETURN(const std::vector<FoundRecord> found, RecordsOf(data_root, job));
  const FoundRecord* const other = OtherEnd(found);
  if (other == nullptr) return OkStatus();
  log::Warn("data sets of one tokenizer end documents with different tokens",
            {{"first", found.front().prefix},
             {"eod", EndText(found.front().record)},
             {"other", other->prefix},
             {"other_eod", EndText(other->record)}});
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

// The files of the run's tokenizer; nullopt where nothing names them.
StatusOr<std::optional<data::TokenizerConfig>> FilesOf(const std::string& data_root,
                                                       const JobSpec& job,
                                                       const data::TokenizerRecord& record) {
  if (!job.data().tokenizer().file().empty() || !job.data().tokenizer().vocab().empty()) {
    ASSIGN_OR_RETURN(data::TokenizerConfig config, ConfigOf(data_root, job));
    return std::optional(std::move(config));
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> prefixes, Prefixes(data_root, job));
  for (const std::string& prefix : prefixes) {
    const std::string folder = std::filesystem::path(prefix).parent_path().string();
    auto kept = data::FindKeptTokenizer(record.type, record.digest, folder);
    if (!kept) continue;
    kept->open = spec::BelowRoot(data_root);
    return kept;
  }
  return std::optional<data::TokenizerConfig>();
}

Status Keep(const std::string& data_root, const JobSpec& job, const data::TokenizerRecord& record,
            const std::string& directory) {
  ASSIGN_OR_RETURN(const std::optional<data::TokenizerConfig> files,
                   FilesOf(data_root, job, record));
  if (!files) return base::NotFound("neither the job nor a folder beside its data has them");
  return data::KeepTokenizer(*files, record.digest, directory);
}

}  // namespace

StatusOr<std::optional<data::TokenizerRecord>> FindJobTokenizer(const std::string& data_root,
                                                                const JobSpec& job) {
  if (job.data().mock() || data_root.empty()) return std::optional<data::TokenizerRecord>();
  ASSIGN_OR_RETURN(const std::vector<FoundRecord> found, RecordsOf(data_root, job));
  const std::optional<data::TokenizerRecord> known = Together(found);
  if (job.data().tokenizer().has_type()) {
    ASSIGN_OR_RETURN(const data::TokenizerConfig config, ConfigOf(data_root, job));
    const auto record = data::RecordOf(config, known ? &*known : nullptr);
    if (!record.ok()) return base::Annotate(record.status(), "data.tokenizer");
    for (const FoundRecord& of : found)
      RETURN_IF_ERROR(data::CheckSameTokenizer(of.record, *record, of.prefix));
    if (!IsOfIds(job)) RETURN_IF_ERROR(CheckAll(found, job));
    return std::optional<data::TokenizerRecord>(*record);
  }
  RETURN_IF_ERROR(CheckAll(found, job));
  return known;
}

StatusOr<std::unique_ptr<data::Tokenizer>> OpenJobTokenizer(
    const std::string& data_root, const JobSpec& job,
    const std::optional<data::TokenizerRecord>& record) {
  // Of mock data, and of files without a record, the job alone tells it.
  std::string type = record ? record->type : std::string(TypeText(job.data().tokenizer().type()));
  if (type.empty()) type = TypeText(Data::Tokenizer::TYPE_NULL);
  if (type == "null" || type == "byte")
    return data::MakeTokenizer({.type = type, .vocab_size = job.model().vocab_size()});
  if (!record) {
    ASSIGN_OR_RETURN(const data::TokenizerConfig named, ConfigOf(data_root, job));
    return data::MakeTokenizer(named);
  }
  ASSIGN_OR_RETURN(const std::optional<data::TokenizerConfig> files,
                   FilesOf(data_root, job, *record));
  if (!files) {
    return base::NotFound(
        "neither the job nor a folder beside its data has the files of {}: name them "
        "(data.tokenizer)",
        data::RecordText(*record));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<data::Tokenizer> made, data::MakeTokenizer(*files));
  // Ranks that write a text together must mean the same by a token.
  if (made->digest() == record->digest) return made;
  return base::FailedPrecondition("the data are of {}; the files that were found are of {}",
                                  data::RecordText(*record),
                                  data::RecordText(data::RecordOfTokenizer(*made)));
}

Status SettleVocabulary(const std::string& data_root, JobSpec* job) {
  ASSIGN_OR_RETURN(const std::optional<data::TokenizerRecord> record,
                   FindJobTokenizer(data_root, *job));
  RETURN_IF_ERROR(SayOtherEnd(data_root, *job));
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

void KeepBesideCheckpoints(const std::string& data_root, const JobSpec& job,
                           const data::TokenizerRecord& record, const std::string& directory) {
  if (record.digest.empty() || directory.empty()) return;
  const Status kept = Keep(data_root, job, record, directory);
  if (kept.ok()) return;
  log::Warn(
      "the tokenizer's files are not kept beside the checkpoints: who reads those as text "
      "names them",
      {{"tokenizer", data::RecordText(record)}, {"why", base::Message(kept)}});
}

}  // namespace mt::train
