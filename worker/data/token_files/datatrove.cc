// Either file may be missing, as datatrove was told; the width comes from the first that says it,
// and all that is said must agree.
#include "worker/data/token_files/datatrove.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <utility>

#include "common/base/files.h"

namespace mt::data {
namespace {

constexpr std::string_view kCopyAnew = "copy the .ds and its .index and .metadata anew";

// What the metadata say; older versions wrote the tokenizer's name alone.
struct Metadata {
  std::optional<int64_t> width{};
  std::optional<int64_t> ids{};
};

std::optional<int64_t> Number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

// The next line, without its end.
std::string_view TakeLine(std::string_view* text) {
  const size_t end = std::min(text->find('\n'), text->size());
  std::string_view line = text->substr(0, end);
  text->remove_prefix(std::min(end + 1, text->size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

StatusOr<Metadata> ReadMetadata(const std::string& path) {
  Metadata out;
  const auto file = MappedFile::Open(path);
  if (absl::IsNotFound(file.status())) return out;
  RETURN_IF_ERROR(file.status());
  std::string text(file->view().substr(0, size_t{1} << 16));
  RETURN_IF_ERROR(file->CheckWhole(path));
  std::string_view rest = text;
  const std::string_view tokenizer = TakeLine(&rest);
  const size_t bar = tokenizer.rfind('|');  // a name may have one too
  if (bar != std::string_view::npos) out.width = Number(tokenizer.substr(bar + 1));
  if (out.width && *out.width != 2 && *out.width != 4) {
    return base::InvalidArgument("{}: tells of ids of {} bytes; those of 2 and 4 are read", path,
                                 *out.width);
  }
  out.ids = Number(TakeLine(&rest));
  return out;
}

// By what datatrove says, in this order: metadata, index; else by what was asked.
StatusOr<int64_t> WidthOf(const std::string& path, int64_t bytes, const DatatroveFacts& facts,
                          const Metadata& metadata, std::optional<TokenType> asked) {
  if (metadata.width) return *metadata.width;
  if (facts.ends) {
    const uint64_t ids = facts.ends->last();
    for (const uint64_t width : {2, 4}) {
      // As a quotient, which does not overflow.
      const auto size = static_cast<uint64_t>(bytes);
      if (size > 0 && size % width == 0 && size / width == ids) return static_cast<int64_t>(width);
    }
    if (bytes > 0 || ids > 0) {
      return base::DataLoss(
          "{}: {} bytes, but its .index ends after {} ids, which have 2 or 4 bytes: truncated, or "
          "the files do not belong together; {}",
          path, bytes, ids, kCopyAnew);
    }
  }
  if (asked) return SizeOf(*asked);
  if (bytes == 0) return SizeOf(TokenType::kU16);
  return base::InvalidArgument(
      "{}: neither {}.metadata nor {}.index is there to say whether its ids have 2 or 4 bytes: put "
      "them beside it, or say so (--token-type u16 or u32)",
      path, path, path);
}

}  // namespace

StatusOr<std::optional<DocumentEnds>> DocumentEnds::Open(const std::string& path) {
  DocumentEnds ends;
  auto file = MappedFile::Open(path);
  if (absl::IsNotFound(file.status())) return std::optional<DocumentEnds>();
  RETURN_IF_ERROR(file.status());
  ends.path_ = path;
  ends.file_ = *std::move(file);
  if (ends.file_.size() % sizeof(uint64_t) != 0) {
    return base::DataLoss("{}: {} bytes are no whole number of ends of 8 bytes: truncated; {}",
                          path, ends.file_.size(), kCopyAnew);
  }
  uint64_t before = 0;
  for (int64_t i = 0; i < ends.count(); ++i) {
    const uint64_t end = ends.at(i);
    if (end < before) {
      RETURN_IF_ERROR(ends.CheckWhole());
      return base::DataLoss("{}: document {} ends at id {}, the one before at {}: damaged; {}",
                            path, i, end, before, kCopyAnew);
    }
    before = end;
  }
  RETURN_IF_ERROR(ends.CheckWhole());
  return std::optional<DocumentEnds>(std::move(ends));
}

uint64_t DocumentEnds::at(int64_t document) const {
  uint64_t end;
  std::memcpy(&end, file_.data() + document * int64_t{sizeof(end)}, sizeof(end));
  return end;
}

bool IsDatatrove(std::string_view path) { return path.ends_with(".ds"); }

StatusOr<DatatroveFacts> ReadDatatrove(const std::string& path, int64_t bytes,
                                       std::optional<TokenType> asked) {
  DatatroveFacts facts;
  ASSIGN_OR_RETURN(const Metadata metadata, ReadMetadata(path + ".metadata"));
  ASSIGN_OR_RETURN(facts.ends, DocumentEnds::Open(path + ".index"));
  ASSIGN_OR_RETURN(const int64_t width, WidthOf(path, bytes, facts, metadata, asked));
  if (asked && bytes > 0 && SizeOf(*asked) != width) {
    return base::InvalidArgument(
        "{}: its ids have {} bytes by what is beside it, not the {} of --token-type", path, width,
        SizeOf(*asked));
  }
  const int64_t ids = bytes / width;
  const bool whole = bytes % width == 0;
  if (metadata.ids && (!whole || *metadata.ids != ids)) {
    return base::DataLoss(
        "{}: {} bytes, but its .metadata tell of {} ids of {} bytes: truncated, or the files do "
        "not belong together; {}",
        path, bytes, *metadata.ids, width, kCopyAnew);
  }
  if (facts.ends && (!whole || facts.ends->last() != static_cast<uint64_t>(ids))) {
    return base::DataLoss(
        "{}: {} bytes, but its .index ends after {} ids of {} bytes: truncated, or the files do "
        "not belong together; {}",
        path, bytes, facts.ends->last(), width, kCopyAnew);
  }
  facts.type = width == 2 ? TokenType::kU16 : TokenType::kI32;
  facts.ends_are_cuts = facts.ends && path.ends_with("chunk_shuffled.ds");
  facts.has_loss_mask = base::Exists(path + ".loss");
  return facts;
}

}  // namespace mt::data
