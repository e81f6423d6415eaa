// Ids keep their bytes: u16 as they are, u32 as i32, which holds every id of a vocabulary.
#include "worker/data/token_files/shard.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <utility>

namespace mt::data {
namespace {

constexpr size_t kHeaderBytes = 1024;
constexpr int32_t kMagicU16 = 20240520;
constexpr int32_t kMagicU32 = 20240801;

// A chunk begins with a u32 count, and count + 1 u32 offsets from behind that table to the end of
// the file. No ids look like that.
bool HasLitdataTable(std::string_view bytes) {
  const auto word = [&](uint64_t index) {
    uint32_t value;
    std::memcpy(&value, bytes.data() + index * sizeof(value), sizeof(value));
    return uint64_t{value};
  };
  if (bytes.size() < 3 * sizeof(uint32_t)) return false;
  const uint64_t items = word(0);
  const uint64_t table_bytes = sizeof(uint32_t) * (items + 2);
  return items > 0 && table_bytes <= bytes.size() && word(1) == table_bytes &&
         word(items + 1) == bytes.size();
}

// Of a compressed chunk only the index beside it tells.
StatusOr<bool> IsInLitdataIndex(const std::string& path) {
  const std::filesystem::path file(path);
  const std::string index_path = (file.parent_path() / "index.json").string();
  const auto index = MappedFile::Open(index_path);
  if (!index.ok()) return false;
  const std::string_view text = index->view();
  const bool named = text.find("\"chunks\"") != std::string_view::npos &&
                     text.find("\"" + file.filename().string() + "\"") != std::string_view::npos;
  RETURN_IF_ERROR(index->CheckWhole(index_path));
  return named;
}

Status RefuseOthers(const std::string& path, std::string_view bytes) {
  for (const std::string_view ending : {".ds.index", ".ds.metadata", ".ds.loss"}) {
    if (!path.ends_with(ending)) continue;
    return base::InvalidArgument("{}: stands beside a .ds file of datatrove: give the .ds alone",
                                 path);
  }
  ASSIGN_OR_RETURN(const bool named, IsInLitdataIndex(path));
  if (!named && !HasLitdataTable(bytes)) return OkStatus();
  return base::InvalidArgument(
      "{}: a chunk of litdata, which is not read: read its ids by litdata and write them as u16 or "
      "u32 without a header (numpy's tofile), which can be imported",
      path);
}

// Of llm.c: what its header says; false for a file without one.
StatusOr<bool> ReadHeader(const std::string& path, Shard* shard) {
  const std::string_view bytes = shard->file.view();
  std::array<int32_t, 3> header{};
  if (bytes.size() >= sizeof(header)) std::memcpy(header.data(), bytes.data(), sizeof(header));
  const bool is_u16 = header[0] == kMagicU16;
  if (!is_u16 && header[0] != kMagicU32) return false;
  shard->type = is_u16 ? TokenType::kU16 : TokenType::kI32;
  const int32_t version = is_u16 ? 1 : 7;
  if (header[1] != version) {
    return base::InvalidArgument("{}: an llm.c shard of version {}, version {} is read", path,
                                 header[1], version);
  }
  const int64_t said = header[2] * SizeOf(shard->type);
  if (bytes.size() < kHeaderBytes || header[2] < 0 ||
      std::ssize(bytes) - static_cast<int64_t>(kHeaderBytes) != said) {
    return base::DataLoss(
        "{}: {} bytes, but its header tells of {} ids after {} bytes: truncated; copy it anew",
        path, bytes.size(), header[2], kHeaderBytes);
  }
  shard->begin = kHeaderBytes;
  shard->ids = bytes.substr(kHeaderBytes);
  shard->eod_begins = true;
  return true;
}

}  // namespace

StatusOr<Shard> OpenShard(const std::string& path, std::optional<TokenType> raw_type) {
  Shard shard{.type = raw_type.value_or(TokenType::kU16)};
  ASSIGN_OR_RETURN(shard.file, MappedFile::Open(path));
  shard.ids = shard.file.view();
  if (IsDatatrove(path)) {
    ASSIGN_OR_RETURN(DatatroveFacts facts, ReadDatatrove(path, std::ssize(shard.ids), raw_type));
    shard.type = facts.type;
    shard.datatrove = std::move(facts);
  } else {
    ASSIGN_OR_RETURN(const bool has_header, ReadHeader(path, &shard));
    if (!has_header) RETURN_IF_ERROR(RefuseOthers(path, shard.ids));
  }
  if (std::ssize(shard.ids) % SizeOf(shard.type) != 0) {
    return base::DataLoss(
        "{}: {} bytes are no whole number of ids of {} bytes: truncated, or of another type", path,
        shard.file.size(), SizeOf(shard.type));
  }
  return shard;
}

}  // namespace mt::data
