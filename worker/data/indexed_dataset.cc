// Validates header, sequences and documents of the .idx against both file sizes, so that reads need
// only the CHECKs of their own arguments. Integers are little-endian and unaligned.
#include "worker/data/indexed_dataset.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "common/base/check.h"
#include "common/base/ids.h"
#include "common/base/log.h"

namespace mt::data {
namespace {

static_assert(std::endian::native == std::endian::little, "the formats are little-endian");

constexpr std::array<unsigned char, 9> kMagic = {'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0};
constexpr uint64_t kIndexVersion = 1;
constexpr int64_t kIdxHeaderBytes = 34;
constexpr std::string_view kMakeAgain =
    "make the data set again with `mtctl data prepare`, or copy it anew";

template <class T>
T LoadAt(const std::byte* base, int64_t index) {
  T value;
  std::memcpy(&value, base + index * int64_t{sizeof(T)}, sizeof(T));
  return value;
}

template <class T>
int64_t TokenAt(const std::byte* source, size_t i) {
  T token;
  std::memcpy(&token, source + i * sizeof(T), sizeof(T));
  return token;  // NOLINT(bugprone-signed-char-misuse): an i8 id keeps its sign and is refused
}

// Maps one of the two files; a missing one gets a message that explains the pair.
StatusOr<MappedFile> OpenPart(const std::string& path, std::string_view prefix,
                              const base::FileOpener& open) {
  StatusOr<MappedFile> file = MappedFile::Open(path, open);
  if (file.ok() || file.status().code() != absl::StatusCode::kNotFound) return file;
  return base::NotFound(
      "{}: no such file; a data set is a pair {}.bin and {}.idx: check the path (without the "
      "ending), or make one with `mtctl data prepare`",
      path, prefix, prefix);
}

}  // namespace

StatusOr<std::shared_ptr<const IndexedDataset>> IndexedDataset::Open(const std::string& prefix,
                                                                     const base::FileOpener& open,
                                                                     const DataCache& cache) {
  std::shared_ptr<IndexedDataset> data(new IndexedDataset);
  data->prefix_ = prefix;
  data->idx_path_ = prefix + ".idx";
  data->bin_path_ = prefix + ".bin";
  data->open_ = open;
  ASSIGN_OR_RETURN(data->idx_, OpenPart(data->idx_path_, prefix, open));
  ASSIGN_OR_RETURN(data->bin_, OpenPart(data->bin_path_, prefix, open));
  Status checked = data->ParseHeader();
  if (checked.ok()) {
    StatusOr<IdxScan> scan = SharedScan(cache,
                                        {.idx = data->idx_.facts(),
                                         .bin_bytes = data->bin_bytes(),
                                         .type = Name(data->token_type_),
                                         .sequences = data->num_sequences_},
                                        [&] { return data->Scan(); });
    checked = scan.status();
    if (scan.ok()) data->scan_ = *std::move(scan);
  }
  if (checked.ok()) checked = data->CheckExtent();
  data->idx_sample_ = SampledDigest(data->idx_.view());
  data->bin_digest_ = SampledDigest(data->bin_.view());
  RETURN_IF_ERROR(data->Intact());
  RETURN_IF_ERROR(checked);
  return std::shared_ptr<const IndexedDataset>(std::move(data));
}

Status IndexedDataset::ParseHeader() {
  const std::byte* header = idx_.data();
  const int64_t size = static_cast<int64_t>(idx_.size());
  if (size < kIdxHeaderBytes) {
    return base::DataLoss("{}: {} bytes, shorter than its header of {}: truncated; {}", idx_path_,
                          size, kIdxHeaderBytes, kMakeAgain);
  }
  if (std::memcmp(header, kMagic.data(), kMagic.size()) != 0) {
    return base::InvalidArgument("{}: not a Megatron .idx file (it does not begin with MMIDIDX)",
                                 idx_path_);
  }
  if (const auto version = LoadAt<uint64_t>(header + 9, 0); version != kIndexVersion) {
    return base::InvalidArgument("{}: .idx version {}, this program reads version {}", idx_path_,
                                 version, kIndexVersion);
  }
  const auto n = LoadAt<uint64_t>(header + 18, 0);
  const auto d = LoadAt<uint64_t>(header + 26, 0);
  // Bounds first, so that the product below cannot overflow.
  const uint64_t most = static_cast<uint64_t>(size);
  if (n > most / 12 || d > most / 8 ||
      size != kIdxHeaderBytes + static_cast<int64_t>(12 * n + 8 * d)) {
    if (n <= most / 12 && d <= most / 8 &&
        size == kIdxHeaderBytes + static_cast<int64_t>(13 * n + 8 * d)) {
      return base::InvalidArgument(
          "{}: holds a mode per sequence (multimodal data), which GPT "
          "training does not read; make a text-only data set",
          idx_path_);
    }
    return base::DataLoss(
        "{}: {} bytes do not fit its header ({} sequences, {} document entries: 34 + 12 N + 8 D "
        "bytes): truncated or damaged; {}",
        idx_path_, size, n, d, kMakeAgain);
  }
  if (d == 0) {
    return base::DataLoss("{}: the document array is empty; {}", idx_path_, kMakeAgain);
  }
  num_sequences_ = static_cast<int64_t>(n);
  num_document_entries_ = static_cast<int64_t>(d);
  lengths_ = header + kIdxHeaderBytes;
  offsets_ = lengths_ + 4 * num_sequences_;
  documents_ = offsets_ + 8 * num_sequences_;
  return SettleType(LoadAt<uint8_t>(header + 17, 0));
}

StatusOr<IdxScan> IndexedDataset::Scan() const {
  IdxScan scan;
  RETURN_IF_ERROR(ScanSequences(&scan));
  RETURN_IF_ERROR(CheckDocuments());
  scan.digest = base::Hash128Hex(idx_.view());
  // What was read of a file that is cut is nothing that others may be told.
  RETURN_IF_ERROR(Intact());
  return scan;
}

Status IndexedDataset::ScanSequences(IdxScan* scan) const {
  const int64_t token_bytes = SizeOf(token_type_);
  const int64_t bin_bytes = static_cast<int64_t>(bin_.size());
  int64_t previous_end = 0;
  for (int64_t i = 0; i < num_sequences_; ++i) {
    if (i % kScanBlock == 0) scan->before.push_back(scan->num_tokens);
    const int32_t tokens = length(i);
    const int64_t begin = byte_offset(i);
    if (tokens < 0 || begin < previous_end || begin % token_bytes != 0) {
      return base::DataLoss(
          "{}: sequence {} ({} tokens at byte {} of the .bin, {} bytes each, the one before ends "
          "at {}) is impossible: damaged; {}",
          idx_path_, i, tokens, begin, token_bytes, previous_end, kMakeAgain);
    }
    scan->spaced_by_8 = scan->spaced_by_8 && begin == 8 * scan->num_tokens;
    const int64_t bytes = tokens * token_bytes;
    if (begin > bin_bytes || bytes > bin_bytes - begin) {
      return base::DataLoss(
          "{}: {} bytes, but sequence {} of the .idx lies at bytes {} to {}: truncated, or the two "
          "files do not belong together; {}",
          bin_path_, bin_bytes, i, begin,
          static_cast<uint64_t>(begin) + static_cast<uint64_t>(bytes), kMakeAgain);
    }
    previous_end = begin + bytes;
    scan->num_tokens += tokens;
    scan->max_length = std::max(scan->max_length, tokens);
  }
  if (num_sequences_ % kScanBlock == 0) scan->before.push_back(scan->num_tokens);
  return OkStatus();
}

// A longer .bin is valid, but one that is exactly what ids of another width would fill is another
// pair's, and every token would be wrong.
Status IndexedDataset::CheckExtent() const {
  const int64_t token_bytes = SizeOf(token_type_);
  const int64_t last = num_sequences_ - 1;
  const int64_t named = last < 0 ? 0 : byte_offset(last) + length(last) * token_bytes;
  const int64_t bin_bytes = static_cast<int64_t>(bin_.size());
  // DeepSpeed's u64, which do not fill the .bin; its gaps are nothing that u16 would have.
  if (token_type_ == TokenType::kU16 && scan_.spaced_by_8 && named > 2 * scan_.num_tokens) {
    return base::DataLoss(
        "{}: {} bytes, but the .idx places its {} tokens as ids of 8 bytes (u64 in DeepSpeed's "
        "codes): truncated, or the two files do not belong together; {}",
        bin_path_, bin_bytes, scan_.num_tokens, kMakeAgain);
  }
  if (bin_bytes == named) return OkStatus();
  for (const int64_t width : {2, 4, 8}) {
    if (named / token_bytes * width != bin_bytes) continue;
    return base::DataLoss(
        "{}: {} bytes, but the .idx names {} tokens of {} bytes, which are {}: so many tokens of "
        "{} bytes would fill it; the two files do not belong together, or the .idx gives another "
        "type than the ids have; {}",
        bin_path_, bin_bytes, named / token_bytes, token_bytes, named, width, kMakeAgain);
  }
  log::Warn("the .bin is longer than its .idx names: what follows is not read",
            {{"path", bin_path_}, {"bytes", bin_bytes}, {"named", named}});
  return OkStatus();
}

Status IndexedDataset::CheckDocuments() const {
  int64_t previous = 0;
  for (int64_t d = 0; d < num_document_entries_; ++d) {
    const int64_t first = document_begin(d);
    if (first < previous || first > num_sequences_ || (d == 0 && first != 0)) {
      return base::DataLoss(
          "{}: document {} starts at sequence {} (the one before at {}, {} sequences in all): "
          "damaged; {}",
          idx_path_, d, first, previous, num_sequences_, kMakeAgain);
    }
    previous = first;
  }
  if (previous != num_sequences_) {
    return base::DataLoss(
        "{}: the last document entry is {}, it must be the number of sequences, {}: damaged; {}",
        idx_path_, previous, num_sequences_, kMakeAgain);
  }
  return OkStatus();
}

int64_t IndexedDataset::document_begin(int64_t document) const {
  return LoadAt<int64_t>(documents_, document);
}

int64_t IndexedDataset::DocumentOf(int64_t sequence) const {
  // The last document that begins at the sequence or before it: those in front may be empty.
  int64_t low = 0;
  int64_t high = num_document_entries_ - 1;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (document_begin(middle) <= sequence ? low : high) = middle;
  }
  return low;
}

int64_t IndexedDataset::byte_offset(int64_t sequence) const {
  return LoadAt<int64_t>(offsets_, sequence);
}

std::string_view IndexedDataset::SequenceBytes(int64_t sequence) const {
  return bin_.view().substr(static_cast<size_t>(byte_offset(sequence)),
                            static_cast<size_t>(length(sequence) * SizeOf(token_type_)));
}

int64_t IndexedDataset::TokensBefore(int64_t sequence) const {
  const int64_t block = sequence / kScanBlock;
  int64_t sum = scan_.before[static_cast<size_t>(block)];
  for (int64_t i = block * kScanBlock; i < sequence; ++i) sum += length(i);
  return sum;
}

int64_t IndexedDataset::CountTokens(int64_t begin, int64_t end) const {
  if (end - begin > 2 * kScanBlock) return TokensBefore(end) - TokensBefore(begin);
  int64_t sum = 0;
  for (int64_t i = begin; i < end; ++i) sum += length(i);
  return sum;
}

template <class T>
Status IndexedDataset::Widen(const std::byte* source, int64_t sequence, int64_t vocab_size,
                             std::span<int32_t> out) const {
  const int64_t limit =
      std::min<int64_t>(vocab_size, int64_t{std::numeric_limits<int32_t>::max()} + 1);
  bool all_inside = true;  // no branch per token, so that the loop vectorises
  for (size_t i = 0; i < out.size(); ++i) {
    const int64_t id = TokenAt<T>(source, i);
    all_inside &= (id >= 0) & (id < limit);
    out[i] = static_cast<int32_t>(id);
  }
  if (all_inside) return OkStatus();
  for (size_t i = 0; i < out.size(); ++i) {
    const int64_t id = TokenAt<T>(source, i);
    if (id >= 0 && id < limit) continue;
    const int64_t at = (source - bin_.data()) / int64_t{sizeof(T)} + static_cast<int64_t>(i);
    return base::InvalidArgument(
        "{}: token {} has id {}, outside the vocabulary of {} (document {}); the data set was made "
        "with another tokenizer, or model.vocab_size is too small",
        bin_path_, at, id, vocab_size, DocumentOf(sequence));
  }
  return OkStatus();
}

Status IndexedDataset::WidenAs(const std::byte* source, int64_t sequence, int64_t vocab_size,
                               std::span<int32_t> out) const {
  switch (token_type_) {
    case TokenType::kU8:
      return Widen<uint8_t>(source, sequence, vocab_size, out);
    case TokenType::kI8:
      return Widen<int8_t>(source, sequence, vocab_size, out);
    case TokenType::kI16:
      return Widen<int16_t>(source, sequence, vocab_size, out);
    case TokenType::kU16:
      return Widen<uint16_t>(source, sequence, vocab_size, out);
    case TokenType::kI32:
      return Widen<int32_t>(source, sequence, vocab_size, out);
    case TokenType::kI64:
      return Widen<int64_t>(source, sequence, vocab_size, out);
    case TokenType::kF64:
    case TokenType::kF32:
      break;
  }
  CHECK(false) << "token type " << Name(token_type_) << " passed Open";
  return OkStatus();
}

Status IndexedDataset::Read(int64_t sequence, int64_t offset, int64_t vocab_size,
                            std::span<int32_t> out) const {
  CHECK(sequence >= 0 && sequence < num_sequences_) << "sequence " << sequence;
  CHECK_GE(offset, 0);
  const int64_t end = offset + std::ssize(out);
  const int64_t begin = byte_offset(sequence);
  const int64_t token_bytes = SizeOf(token_type_);
  // As checked by Open: what is different now was written since, whoever asks.
  if (end > length(sequence) || begin < 0 || end * token_bytes > bin_bytes() - begin) {
    RETURN_IF_ERROR(Intact());
    return base::DataLoss(
        "{}: {} tokens from {} on are not in sequence {} any more: the file was written over since "
        "it was opened; {}",
        idx_path_, out.size(), offset, sequence, kMakeAgain);
  }
  const std::byte* source = bin_.data() + begin + offset * token_bytes;
  Status widened = WidenAs(source, sequence, vocab_size, out);
  RETURN_IF_ERROR(Intact());
  return widened;
}

Status IndexedDataset::Intact() const {
  if (idx_.lost()) return Lost(idx_path_, idx_);
  if (bin_.lost()) return Lost(bin_path_, bin_);
  return OkStatus();
}

Status IndexedDataset::Lost(const std::string& path, const MappedFile& file) const {
  const auto before = static_cast<int64_t>(file.size());
  StatusOr<FileFacts> now = FileFacts{};
  if (const auto fd = OpenFile(path, open_); fd.ok()) {
    now = FactsOf(*fd, path);
  } else {
    now = fd.status();
  }
  if (now.ok() && now->bytes < before) {
    return base::DataLoss(
        "{}: a part of it is gone: {} bytes, but it had {} when it was opened: it was cut "
        "meanwhile; put the file back",
        path, now->bytes, before);
  }
  return base::DataLoss(
      "{}: a part of its {} bytes could not be read: its storage failed, or the file was cut "
      "meanwhile ({})",
      path, before,
      now.ok() ? fmt::format("it has {} bytes now", now->bytes) : base::Message(now.status()));
}

std::vector<FileWatch> IndexedDataset::Watches(bool bin_may_change) const {
  std::vector<FileWatch> watches;
  watches.emplace_back(FileWatch::Args{
      .path = idx_path_, .open = open_, .facts = idx_.facts(), .digest = idx_sample_});
  watches.emplace_back(FileWatch::Args{.path = bin_path_,
                                       .open = open_,
                                       .facts = bin_.facts(),
                                       .digest = bin_digest_,
                                       .may_change = bin_may_change});
  return watches;
}

}  // namespace mt::data
