// Ids keep their bytes: u16 as they are, u32 as i32, which holds every id of a vocabulary.
#include "worker/data/token_files/import_shards.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "worker/data/mapped_file.h"
#include "worker/data/token_files/raw_writer.h"
#include "worker/data/tokenizer/record.h"

namespace mt::data {
namespace {

constexpr size_t kHeaderBytes = 1024;
constexpr int32_t kMagicU16 = 20240520;
constexpr int32_t kMagicU32 = 20240801;

// One shard: its file, and which bytes of it are ids of which type.
struct Shard {
  MappedFile file{};
  std::string_view ids{};
  size_t begin = 0;  // of the ids in the file
  TokenType type = TokenType::kU16;
};

StatusOr<Shard> OpenShard(const std::string& path, TokenType raw_type) {
  Shard shard{.type = raw_type};
  ASSIGN_OR_RETURN(shard.file, MappedFile::Open(path));
  const std::string_view bytes = shard.file.view();
  std::array<int32_t, 3> header{};
  if (bytes.size() >= sizeof(header)) std::memcpy(header.data(), bytes.data(), sizeof(header));
  const bool is_u16 = header[0] == kMagicU16;
  const bool is_u32 = header[0] == kMagicU32;
  shard.ids = bytes;
  if (is_u16 || is_u32) {
    shard.type = is_u16 ? TokenType::kU16 : TokenType::kI32;
    const int32_t version = is_u16 ? 1 : 7;
    if (header[1] != version) {
      return base::InvalidArgument("{}: an llm.c shard of version {}, version {} is read", path,
                                   header[1], version);
    }
    const int64_t said = header[2] * SizeOf(shard.type);
    if (bytes.size() < kHeaderBytes || header[2] < 0 ||
        std::ssize(bytes) - static_cast<int64_t>(kHeaderBytes) != said) {
      return base::DataLoss(
          "{}: {} bytes, but its header tells of {} ids after {} bytes: truncated; copy it anew",
          path, bytes.size(), header[2], kHeaderBytes);
    }
    shard.begin = kHeaderBytes;
    shard.ids = bytes.substr(kHeaderBytes);
  }
  if (std::ssize(shard.ids) % SizeOf(shard.type) != 0) {
    return base::DataLoss(
        "{}: {} bytes are no whole number of ids of {} bytes: truncated, or of "
        "another type",
        path, bytes.size(), SizeOf(shard.type));
  }
  return shard;
}

class Importer {
 public:
  Importer(const ImportArgs& args, RawWriter* writer, int64_t total_bytes)
      : args_(args), writer_(writer), total_bytes_(total_bytes) {}

  template <class T>
  Status Add(const std::string& path, const Shard& shard) {
    const size_t count = shard.ids.size() / sizeof(T);
    size_t written = 0;  // ids
    const auto write_to = [&](size_t end) {
      const size_t from = std::exchange(written, end);
      return writer_->Append(shard.ids.substr(from * sizeof(T), (end - from) * sizeof(T)));
    };
    for (size_t i = 0; i < count; ++i) {
      T id;
      std::memcpy(&id, shard.ids.data() + i * sizeof(T), sizeof(T));
      if (int64_t{id} >= most_) return Outside(path, shard.begin + i * sizeof(T), id);
      if (int64_t{id} == args_.eod) {
        const size_t end = args_.eod_begins ? i : i + 1;
        RETURN_IF_ERROR(write_to(end));
        RETURN_IF_ERROR(EndDocument());
      }
      if (i % (size_t{1} << 20) == 0) Report(static_cast<int64_t>(i * sizeof(T)));
    }
    RETURN_IF_ERROR(write_to(count));
    done_bytes_ += std::ssize(shard.ids);
    Report(0);
    return args_.eod < 0 ? EndDocument() : OkStatus();
  }

  Status EndDocument() {
    if (writer_->num_tokens() == document_begin_) return OkStatus();
    document_begin_ = writer_->num_tokens();
    RETURN_IF_ERROR(writer_->EndSequence());
    writer_->EndDocument();
    return OkStatus();
  }

 private:
  Status Outside(const std::string& path, size_t byte, int64_t id) const {
    return base::InvalidArgument(
        "{}: id {} at byte {} is outside the vocabulary of {}: another tokenizer made it, or its "
        "ids have another width (--token-type)",
        path, id, byte, most_);
  }
  void Report(int64_t more_bytes) const {
    if (args_.progress) args_.progress(done_bytes_ + more_bytes, total_bytes_);
  }

  const ImportArgs& args_;
  RawWriter* const writer_;
  const int64_t total_bytes_;
  const int64_t most_ =
      args_.vocab_size > 0 ? args_.vocab_size : int64_t{std::numeric_limits<int32_t>::max()} + 1;
  int64_t document_begin_ = 0;
  int64_t done_bytes_ = 0;
};

}  // namespace

StatusOr<WrittenDataset> ImportShards(const ImportArgs& args) {
  if (args.inputs.empty()) return base::InvalidArgument("no shards are given");
  int64_t total_bytes = 0;
  std::optional<TokenType> type;
  for (const std::string& path : args.inputs) {
    ASSIGN_OR_RETURN(const Shard shard, OpenShard(path, args.raw_type));
    total_bytes += std::ssize(shard.ids);
    if (type.value_or(shard.type) != shard.type) {
      return base::InvalidArgument("{} holds ids of {} bytes and {} of {}: one width at a time",
                                   path, SizeOf(shard.type), args.inputs.front(), SizeOf(*type));
    }
    type = shard.type;
  }
  const TokenType written = type.value_or(args.raw_type);
  ASSIGN_OR_RETURN(const auto writer, RawWriter::Create(args.output, written, args.overwrite));
  Importer importer(args, writer.get(), total_bytes);
  for (const std::string& path : args.inputs) {
    ASSIGN_OR_RETURN(const Shard shard, OpenShard(path, args.raw_type));
    RETURN_IF_ERROR(written == TokenType::kU16 ? importer.Add<uint16_t>(path, shard)
                                               : importer.Add<uint32_t>(path, shard));
    RETURN_IF_ERROR(shard.file.CheckWhole(path));
  }
  RETURN_IF_ERROR(importer.EndDocument());
  if (writer->num_tokens() == 0)
    return base::InvalidArgument("the {} shards hold no ids", args.inputs.size());
  // Of an old data set under the same name; nothing tells what made these ids.
  std::error_code ignored;
  std::filesystem::remove(RecordPath(args.output), ignored);
  RETURN_IF_ERROR(writer->Finish());
  return WrittenDataset{.prefix = args.output,
                        .token_type = written,
                        .documents = writer->num_documents(),
                        .sequences = writer->num_sequences(),
                        .tokens = writer->num_tokens()};
}

}  // namespace mt::data
