// Fields stand at the offsets of POSIX' ustar. A size of 8 GiB or more is written in base 256, as
// GNU and BSD tar do.
#include "daemon/backup/tar.h"

#include <algorithm>
#include <cctype>

namespace mt::daemon {
namespace {

struct Field {
  size_t offset, size;
};
constexpr Field kName{0, 100}, kMode{100, 8}, kUid{108, 8}, kGid{116, 8}, kSize{124, 12},
    kTime{136, 12}, kSum{148, 8}, kType{156, 1}, kMagic{257, 8};
constexpr std::string_view kUstar{
    "ustar\0"
    "00",
    8};
constexpr int64_t kOctalLimit = int64_t{1} << 33;  // eleven octal digits
constexpr auto kBase256 = static_cast<char>(0x80);

void Put(std::string* block, Field field, std::string_view bytes) {
  block->replace(field.offset, bytes.size(), bytes);
}

void PutNumber(std::string* block, Field field, int64_t value) {
  if (value < kOctalLimit) {
    Put(block, field, fmt::format("{:0{}o}", value, field.size - 1));
    return;
  }
  std::string bytes(field.size, '\0');
  for (size_t i = field.size; i-- > 1; value >>= 8) bytes[i] = static_cast<char>(value & 0xff);
  bytes[0] = kBase256;
  Put(block, field, bytes);
}

std::string_view Get(std::string_view block, Field field) {
  return block.substr(field.offset, field.size);
}

// -1: no number.
int64_t GetNumber(std::string_view block, Field field) {
  std::string_view bytes = Get(block, field);
  int64_t value = 0;
  if (bytes[0] == kBase256) {
    for (const char c : bytes.substr(1)) {
      if (value >= int64_t{1} << 54) return -1;
      value = value << 8 | static_cast<unsigned char>(c);
    }
    return value;
  }
  bytes = bytes.substr(0, bytes.find_first_of(std::string_view("\0 ", 2)));
  if (bytes.empty()) return -1;
  for (const char c : bytes) {
    if (c < '0' || c > '7') return -1;
    value = value * 8 + (c - '0');
  }
  return value;
}

// The sum of the block's bytes with spaces in place of the sum itself.
int64_t SumOf(std::string_view block) {
  int64_t sum = 0;
  for (size_t i = 0; i < block.size(); ++i) {
    const bool own = i >= kSum.offset && i < kSum.offset + kSum.size;
    sum += own ? ' ' : static_cast<unsigned char>(block[i]);
  }
  return sum;
}

}  // namespace

StatusOr<std::string> TarHeader(const TarEntry& entry) {
  if (entry.name.size() > kName.size || !SafeTarName(entry.name))
    return base::InvalidArgument("{}: no name for a file in an archive", entry.name);
  std::string block(kTarBlock, '\0');
  Put(&block, kName, entry.name);
  Put(&block, kMode, "0000600");
  PutNumber(&block, kUid, 0);
  PutNumber(&block, kGid, 0);
  PutNumber(&block, kSize, entry.size);
  PutNumber(&block, kTime, entry.time_s);
  Put(&block, kType, "0");
  Put(&block, kMagic, kUstar);
  Put(&block, kSum, fmt::format("{:06o}", SumOf(block)) + std::string("\0 ", 2));
  return block;
}

size_t TarPadding(int64_t size) {
  return (kTarBlock - static_cast<size_t>(size) % kTarBlock) % kTarBlock;
}

std::string TarEnd() { return std::string(2 * kTarBlock, '\0'); }

StatusOr<std::optional<TarEntry>> ParseTarHeader(std::string_view block) {
  if (block.find_first_not_of('\0') == std::string_view::npos) return std::optional<TarEntry>();
  if (block.size() != kTarBlock || Get(block, kMagic).substr(0, 5) != kUstar.substr(0, 5) ||
      GetNumber(block, kSum) != SumOf(block)) {
    return base::DataLoss("a header of the archive is damaged, or this is no tar archive");
  }
  TarEntry entry;
  entry.name = Get(block, kName);
  entry.name.resize(std::min(entry.name.size(), entry.name.find('\0')));
  entry.size = GetNumber(block, kSize);
  entry.time_s = GetNumber(block, kTime);
  const char type = Get(block, kType)[0];
  if ((type != '0' && type != '\0') || entry.size < 0)
    return base::DataLoss("'{}' in the archive is no regular file", entry.name);
  if (!SafeTarName(entry.name)) {
    return base::DataLoss("'{}' in the archive is not the name of a file below its folder",
                          entry.name);
  }
  return std::optional<TarEntry>(std::move(entry));
}

bool SafeTarName(std::string_view name) {
  const auto printable = [](char c) { return c > ' ' && c <= '~' && c != '\\'; };
  if (!std::ranges::all_of(name, printable)) return false;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('/', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    if (part.empty() || part == "." || part == "..") return false;
    begin = end + 1;
  }
  return true;
}

}  // namespace mt::daemon
