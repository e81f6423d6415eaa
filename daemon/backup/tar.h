// Headers of tar archives (POSIX ustar): regular files only, so that `tar -x` reads a backup and a
// restore reads nothing that it could not have written. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace mt::daemon {

inline constexpr size_t kTarBlock = 512;

struct TarEntry {
  std::string name;
  int64_t size = 0;    // bytes
  int64_t time_s = 0;  // Unix time of the change
};

// The block before a file's bytes. InvalidArgument where the name is longer than 100 bytes.
StatusOr<std::string> TarHeader(const TarEntry& entry);
// Number of zero bytes behind a file of `size` bytes.
size_t TarPadding(int64_t size);
// What ends an archive.
std::string TarEnd();

// Reads a header block; nullopt: it is of zeros, the archive's end. DataLoss where it is damaged,
// or of anything but a regular file with a name as SafeTarName wants it.
StatusOr<std::optional<TarEntry>> ParseTarHeader(std::string_view block);
// True for a name below the folder that an archive is unpacked in: relative, of printable
// characters, without empty parts, "." and "..".
bool SafeTarName(std::string_view name);

}  // namespace mt::daemon
