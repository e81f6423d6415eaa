// One input of `mtctl data prepare` as a stream of text: a file as it is, gzip or zstd (told by its
// first bytes, not by its name), or standard input. Memory does not grow with the input. Not
// thread-safe; every call may block. Errors name the file and the byte in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace mt::data {

constexpr std::string_view kStandardInput = "-";
// So much of its beginning is judged, less where it ends.
inline constexpr size_t kJudgedBytes = 4096;

// The file that an input was, to tell that it is still the same.
struct InputIdentity {
  int64_t bytes = 0;  // on disk; 0 for standard input
  int64_t modified_ns = 0;
  friend bool operator==(const InputIdentity&, const InputIdentity&) = default;
};

class TextInput {
 public:
  virtual ~TextInput() = default;
  // Opens `path`, "-" for standard input. kInvalidArgument for what is no regular file, and for
  // Parquet, xz, bzip2 and zip, with the command that helps.
  static StatusOr<std::unique_ptr<TextInput>> Open(const std::string& path);

  // Reads up to out.size() bytes of text; 0 at the end only. kDataLoss for a compressed file that
  // is damaged or cut off.
  virtual StatusOr<size_t> Read(std::span<char> out) = 0;
  // Passes over so much text. kDataLoss if there is less.
  virtual Status Skip(int64_t bytes);
  // How far the file itself was read, to tell the share done.
  virtual int64_t file_bytes_read() const = 0;
};

// Size and time of a regular file; zeros for standard input. Errors as of Open.
StatusOr<InputIdentity> IdentifyInput(const std::string& path);

// The first bytes of the text, at most `bytes`; "" for standard input, which is not touched.
StatusOr<std::string> InputBeginning(const std::string& path, size_t bytes);

}  // namespace mt::data
