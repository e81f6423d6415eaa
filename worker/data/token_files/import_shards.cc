// All shards are looked at before the first is copied, so that a bad one among many is named at
// once.
#include "worker/data/token_files/import_shards.h"

#include <cstring>
#include <limits>
#include <memory>
#include <utility>

#include "worker/data/token_files/raw_writer.h"
#include "worker/data/token_files/shard.h"
#include "worker/data/token_files/tally.h"

namespace mt::data {
namespace {

// What the shards are, before any is copied.
struct Survey {
  std::vector<std::string> paths{};  // of those that have ids
  TokenType type = TokenType::kU16;
  int64_t total_bytes = 0;
  std::vector<std::string> notes{};
};

StatusOr<Survey> Look(const ImportArgs& args) {
  if (args.inputs.empty()) return base::InvalidArgument("no shards are given");
  Survey out;
  Tally empty, cuts, masks;
  for (const std::string& path : args.inputs) {
    ASSIGN_OR_RETURN(const Shard shard, OpenShard(path, args.raw_type));
    if (shard.datatrove && shard.datatrove->ends_are_cuts) cuts.Add(path);
    if (shard.datatrove && shard.datatrove->has_loss_mask) masks.Add(path);
    // A rank without documents leaves one; its empty documents, if any, are nothing to train on.
    if (shard.ids.empty()) {
      empty.Add(path);
      continue;
    }
    if (out.paths.empty()) out.type = shard.type;
    out.paths.push_back(path);
    out.total_bytes += std::ssize(shard.ids);
    if (shard.type != out.type) {
      return base::InvalidArgument("{} holds ids of {} bytes and {} of {}: one width at a time",
                                   path, SizeOf(shard.type), out.paths.front(), SizeOf(out.type));
    }
  }
  if (out.paths.empty())
    return base::InvalidArgument("the {} shards hold no ids", args.inputs.size());
  if (empty.any())
    out.notes.push_back(fmt::format("left out, since without ids: {}", empty.Paths()));
  if (cuts.any()) {
    out.notes.push_back(
        fmt::format("the index of chunks that were shuffled names their borders too, so documents "
                    "are cut there: {}",
                    cuts.Paths()));
  }
  if (masks.any()) {
    out.notes.push_back(fmt::format(
        "the loss masks (.loss) are not taken over; a run learns all ids of: {}", masks.Paths()));
  }
  return out;
}

// The record to be left; nullopt without a tokenizer.
StatusOr<std::optional<TokenizerRecord>> RecordFor(const ImportArgs& args) {
  std::optional<TokenizerRecord> record = args.tokenizer;
  if (!record || args.eod < 0) return record;
  if (args.eod >= record->vocab_size) {
    return base::InvalidArgument("the end-of-document id {} is none of {}", args.eod,
                                 RecordText(*record));
  }
  SetEod(static_cast<int32_t>(args.eod), &*record);
  return record;
}

class Importer {
 public:
  Importer(const ImportArgs& args, RawWriter* writer, int64_t total_bytes)
      : args_(args), writer_(writer), total_bytes_(total_bytes) {}

  template <class T>
  Status Add(const std::string& path, const Shard& shard) {
    const size_t count = shard.ids.size() / sizeof(T);
    const int64_t eod = EodOf(shard);
    if (const DocumentEnds* ends = shard.ends(); ends != nullptr) {
      RETURN_IF_ERROR(EndDocument());
      RETURN_IF_ERROR(AddDocuments<T>(path, shard, *ends));
    } else {
      RETURN_IF_ERROR(AddIds<T>(path, shard, 0, count));
      if (eod < 0) RETURN_IF_ERROR(EndDocument());
    }
    done_bytes_ += std::ssize(shard.ids);
    Report(0);
    return OkStatus();
  }

  // Ends the document that is open, if one is.
  Status EndDocument() {
    if (writer_->num_tokens() == document_begin_) return OkStatus();
    document_begin_ = writer_->num_tokens();
    RETURN_IF_ERROR(writer_->EndSequence());
    writer_->EndDocument();
    return OkStatus();
  }

 private:
  int64_t EodOf(const Shard& shard) const {
    if (args_.eod < 0 && args_.tokenizer && shard.ends() == nullptr) return args_.tokenizer->eod;
    return args_.eod;
  }

  // The documents of an index, which ends where the ids do.
  template <class T>
  Status AddDocuments(const std::string& path, const Shard& shard, const DocumentEnds& ends) {
    size_t begin = 0;
    for (int64_t i = 0; i < ends.count(); ++i) {
      const auto end = static_cast<size_t>(ends.at(i));
      // As checked, unless the file was written over since.
      if (end < begin || end > shard.ids.size() / sizeof(T)) {
        RETURN_IF_ERROR(ends.CheckWhole());
        return base::DataLoss("{}.index: was written over while it was read", path);
      }
      if (end == begin) {
        writer_->EndDocument();
        continue;
      }
      RETURN_IF_ERROR(AddIds<T>(path, shard, begin, end));
      RETURN_IF_ERROR(EndDocument());
      begin = end;
    }
    return ends.CheckWhole();
  }

  // Ids [begin, end), divided where the end-of-document id stands.
  template <class T>
  Status AddIds(const std::string& path, const Shard& shard, size_t begin, size_t end) {
    const int64_t eod = EodOf(shard);
    const bool eod_begins = args_.eod_begins.value_or(shard.eod_begins);
    size_t written = begin;
    const auto write_to = [&](size_t to) {
      const size_t from = std::exchange(written, to);
      return writer_->Append(shard.ids.substr(from * sizeof(T), (to - from) * sizeof(T)));
    };
    for (size_t i = begin; i < end; ++i) {
      T id;
      std::memcpy(&id, shard.ids.data() + i * sizeof(T), sizeof(T));
      if (int64_t{id} >= most_) return Outside(path, shard.begin + i * sizeof(T), id);
      if (int64_t{id} == eod) {
        RETURN_IF_ERROR(write_to(eod_begins ? i : i + 1));
        RETURN_IF_ERROR(EndDocument());
      }
      if (i % (size_t{1} << 20) == 0) Report(static_cast<int64_t>(i * sizeof(T)));
    }
    return write_to(end);
  }

  Status Outside(const std::string& path, size_t byte, int64_t id) const {
    return base::InvalidArgument(
        "{}: id {} at byte {} is outside the vocabulary of {}: another tokenizer made it, or its "
        "ids have another width (--token-type)",
        path, id, byte, most_);
  }
  void Report(int64_t more_bytes) const {
    if (args_.progress) args_.progress(done_bytes_ + more_bytes, total_bytes_);
  }
  static int64_t MostIds(const ImportArgs& args) {
    if (args.vocab_size > 0) return args.vocab_size;
    if (args.tokenizer) return args.tokenizer->vocab_size;
    return int64_t{std::numeric_limits<int32_t>::max()} + 1;
  }

  const ImportArgs& args_;
  RawWriter* const writer_;
  const int64_t total_bytes_;
  const int64_t most_ = MostIds(args_);
  int64_t document_begin_ = 0;
  int64_t done_bytes_ = 0;
};

}  // namespace

StatusOr<WrittenDataset> ImportShards(const ImportArgs& args) {
  ASSIGN_OR_RETURN(const auto record, RecordFor(args));
  ASSIGN_OR_RETURN(const Survey survey, Look(args));
  ASSIGN_OR_RETURN(const auto writer, RawWriter::Create(args.output, survey.type, args.overwrite));
  Importer importer(args, writer.get(), survey.total_bytes);
  for (const std::string& path : survey.paths) {
    ASSIGN_OR_RETURN(const Shard shard, OpenShard(path, args.raw_type));
    if (shard.type != survey.type)
      return base::DataLoss("{}: was written over while it was read", path);
    RETURN_IF_ERROR(survey.type == TokenType::kU16 ? importer.Add<uint16_t>(path, shard)
                                                   : importer.Add<uint32_t>(path, shard));
    RETURN_IF_ERROR(shard.file.CheckWhole(path));
  }
  RETURN_IF_ERROR(importer.EndDocument());
  RETURN_IF_ERROR(writer->Finish(record, args.tokenizer_files));
  return WrittenDataset{.prefix = args.output,
                        .token_type = survey.type,
                        .documents = writer->num_documents(),
                        .sequences = writer->num_sequences(),
                        .tokens = writer->num_tokens(),
                        .notes = survey.notes};
}

}  // namespace mt::data
