// A descriptor with a look at its first bytes, and two decoders on top of it. Both formats may
// consist of several members one after the other, as pigz, bgzip and `cat a.gz b.gz` make them.
#include "worker/data/prepare/text_input.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>
#include <zlib.h>
#include <zstd.h>

#include "common/base/files.h"

namespace mt::data {
namespace {

constexpr size_t kPackedBytes = size_t{256} << 10;

struct Refused {
  std::string_view magic, advice;
};
constexpr Refused kRefused[] = {
    {"PAR1",
     "is Parquet, which is not read: make lines of JSON of it, with python3 -c 'import pandas; "
     "pandas.read_parquet(\"{}\").to_json(\"text.jsonl\", orient=\"records\", lines=True)', and "
     "give --jsonl-key"},
    {"\xFD"
     "7zXZ",
     "is compressed (xz): unpack it first, with unxz -k {}"},
    {"BZh", "is compressed (bzip2): unpack it first, with bunzip2 -k {}"},
    {"PK\x03\x04", "is compressed (zip): unpack it first, with unzip {}"}};

// A file or standard input as it is.
class PlainInput final : public TextInput {
 public:
  PlainInput(std::string path, base::Fd fd, bool seekable)
      : path_(std::move(path)), fd_(std::move(fd)), seekable_(seekable) {}

  StatusOr<size_t> Read(std::span<char> out) override {
    if (given_ < begun_.size()) {
      const size_t count = std::min(out.size(), begun_.size() - given_);
      std::copy_n(begun_.data() + given_, count, out.data());
      given_ += count;
      return count;
    }
    return ReadFile(out);
  }

  Status Skip(int64_t bytes) override {
    if (!seekable_) return TextInput::Skip(bytes);
    given_ = begun_.size();  // what was looked at is at the beginning of the file
    struct stat info {};
    if (::fstat(fd_.get(), &info) != 0) return base::ErrnoError(errno, "stat " + path_);
    if (bytes > info.st_size) {
      return base::DataLoss("{}: {} bytes, shorter than it was", path_, int64_t{info.st_size});
    }
    if (::lseek(fd_.get(), bytes, SEEK_SET) < 0) return base::ErrnoError(errno, "seek " + path_);
    read_ = bytes;
    return OkStatus();
  }

  int64_t file_bytes_read() const override { return read_; }

  // Reads the first bytes ahead; Read gives them again.
  StatusOr<std::string_view> Look() {
    constexpr size_t kLook = 8;
    begun_.resize(kLook);
    size_t have = 0;
    while (have < kLook) {
      ASSIGN_OR_RETURN(const size_t got, ReadFile(std::span(begun_).subspan(have)));
      if (got == 0) break;
      have += got;
    }
    begun_.resize(have);
    return std::string_view(begun_);
  }
  const std::string& path() const { return path_; }

 private:
  StatusOr<size_t> ReadFile(std::span<char> out) {
    for (;;) {
      const ssize_t n = ::read(fd_.get(), out.data(), out.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return base::ErrnoError(errno, fmt::format("read {} at byte {}", path_, read_));
      read_ += n;
      return static_cast<size_t>(n);
    }
  }

  const std::string path_;
  const base::Fd fd_;
  const bool seekable_;
  std::string begun_;
  size_t given_ = 0;  // of begun_
  int64_t read_ = 0;
};

// What the decoders share: the packed bytes at hand.
class PackedInput : public TextInput {
 public:
  explicit PackedInput(std::unique_ptr<PlainInput> file)
      : file_(std::move(file)), packed_(kPackedBytes) {}
  int64_t file_bytes_read() const override { return file_->file_bytes_read(); }

 protected:
  // Makes sure that packed bytes are at hand; false at the end of the file.
  StatusOr<bool> Refill() {
    if (!at_hand_.empty()) return true;
    ASSIGN_OR_RETURN(const size_t got, file_->Read(packed_));
    at_hand_ = std::span(packed_).first(got);
    return got > 0;
  }
  std::span<char> at_hand() const { return at_hand_; }
  void Take(size_t bytes) { at_hand_ = at_hand_.subspan(bytes); }
  Status Damaged(std::string_view what) const {
    return base::DataLoss("{}: {} near byte {} of the file: copy it anew", file_->path(), what,
                          file_bytes_read() - static_cast<int64_t>(at_hand_.size()));
  }

 private:
  const std::unique_ptr<PlainInput> file_;
  std::vector<char> packed_;
  std::span<char> at_hand_;
};

class GzipInput final : public PackedInput {
 public:
  explicit GzipInput(std::unique_ptr<PlainInput> file) : PackedInput(std::move(file)) {
    ready_ = inflateInit2(&stream_, 16 + MAX_WBITS) == Z_OK;
  }
  ~GzipInput() override {
    if (ready_) inflateEnd(&stream_);
  }

  StatusOr<size_t> Read(std::span<char> out) override {
    if (!ready_) return base::Internal("zlib gives no decoder");
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    stream_.avail_out = static_cast<uInt>(std::min(out.size(), size_t{1} << 30));
    const uInt room = stream_.avail_out;
    while (stream_.avail_out == room) {
      ASSIGN_OR_RETURN(const bool more, Refill());
      if (!more && between_) return size_t{0};
      if (!more) return Damaged("the gzip data is cut off");
      RETURN_IF_ERROR(Decode());
    }
    return size_t{room - stream_.avail_out};
  }

 private:
  Status Decode() {
    const std::span<char> packed = at_hand();
    // Some tools fill up behind the last member with zeros.
    if (between_ && begun_ && packed.front() == '\0') {
      Take(1);
      return OkStatus();
    }
    if (between_ && inflateReset(&stream_) != Z_OK) return Damaged("zlib fails");
    stream_.next_in = reinterpret_cast<Bytef*>(packed.data());
    stream_.avail_in = static_cast<uInt>(packed.size());
    const int result = inflate(&stream_, Z_NO_FLUSH);
    Take(packed.size() - stream_.avail_in);
    if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR)
      return Damaged("the gzip data is damaged");
    begun_ = true;
    between_ = result == Z_STREAM_END;
    return OkStatus();
  }

  z_stream stream_{};
  bool ready_ = false;
  bool begun_ = false;
  bool between_ = true;  // members
};

class ZstdInput final : public PackedInput {
 public:
  explicit ZstdInput(std::unique_ptr<PlainInput> file)
      : PackedInput(std::move(file)), decoder_(ZSTD_createDCtx(), &ZSTD_freeDCtx) {}

  StatusOr<size_t> Read(std::span<char> out) override {
    if (decoder_ == nullptr) return base::Internal("zstd gives no decoder");
    ZSTD_outBuffer to{out.data(), out.size(), 0};
    while (to.pos == 0) {
      ASSIGN_OR_RETURN(const bool more, Refill());
      if (!more && between_) return size_t{0};
      ZSTD_inBuffer from{at_hand().data(), at_hand().size(), 0};
      const size_t left = ZSTD_decompressStream(decoder_.get(), &to, &from);
      if (ZSTD_isError(left) != 0) return Damaged(fmt::format("zstd: {}", ZSTD_getErrorName(left)));
      if (!more && to.pos == 0) return Damaged("the zstd data is cut off");
      Take(from.pos);
      between_ = left == 0;
    }
    return to.pos;
  }

 private:
  const std::unique_ptr<ZSTD_DCtx, size_t (*)(ZSTD_DCtx*)> decoder_;
  bool between_ = true;  // frames
};

StatusOr<std::unique_ptr<PlainInput>> OpenPlain(const std::string& path) {
  if (path == kStandardInput) {
    base::Fd copy(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0));
    if (!copy) return base::ErrnoError(errno, "open standard input");
    return std::make_unique<PlainInput>("standard input", std::move(copy), false);
  }
  // O_NONBLOCK, so that opening a named pipe returns and the pipe is refused.
  base::Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return base::ErrnoError(errno, "open " + path);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return base::ErrnoError(errno, "stat " + path);
  if (!S_ISREG(info.st_mode))
    return base::InvalidArgument("{}: not a regular file; - reads standard input", path);
  ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
  return std::make_unique<PlainInput>(path, std::move(fd), true);
}

}  // namespace

StatusOr<std::unique_ptr<TextInput>> TextInput::Open(const std::string& path) {
  ASSIGN_OR_RETURN(std::unique_ptr<PlainInput> plain, OpenPlain(path));
  ASSIGN_OR_RETURN(const std::string_view begin, plain->Look());
  for (const Refused& refused : kRefused) {
    if (begin.starts_with(refused.magic)) {
      return base::InvalidArgument("{} {}", path, fmt::format(fmt::runtime(refused.advice), path));
    }
  }
  if (begin.starts_with("\x1F\x8B")) return std::make_unique<GzipInput>(std::move(plain));
  // A frame, or one that readers skip.
  const bool skipped = begin.size() >= 4 &&
                       (static_cast<unsigned char>(begin[0]) & 0xF0U) == 0x50U &&
                       begin.substr(1, 3) == "\x2A\x4D\x18";
  if (skipped || begin.starts_with("\x28\xB5\x2F\xFD"))
    return std::make_unique<ZstdInput>(std::move(plain));
  return plain;
}

Status TextInput::Skip(int64_t bytes) {
  std::vector<char> passed(kPackedBytes);
  while (bytes > 0) {
    const size_t most = static_cast<size_t>(std::min<int64_t>(bytes, std::ssize(passed)));
    ASSIGN_OR_RETURN(const size_t got, Read(std::span(passed).first(most)));
    if (got == 0) return base::DataLoss("an input is shorter than it was");
    bytes -= static_cast<int64_t>(got);
  }
  return OkStatus();
}

StatusOr<InputIdentity> IdentifyInput(const std::string& path) {
  if (path == kStandardInput) return InputIdentity{};
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return base::ErrnoError(errno, "open " + path);
  if (!S_ISREG(info.st_mode))
    return base::InvalidArgument("{}: not a regular file; - reads standard input", path);
  return InputIdentity{
      .bytes = info.st_size,
      .modified_ns = info.st_mtim.tv_sec * int64_t{1000000000} + info.st_mtim.tv_nsec};
}

StatusOr<std::string> InputBeginning(const std::string& path, size_t bytes) {
  if (path == kStandardInput) return std::string();
  ASSIGN_OR_RETURN(const auto input, TextInput::Open(path));
  std::string text(bytes, '\0');
  size_t have = 0;
  while (have < bytes) {
    ASSIGN_OR_RETURN(const size_t got, input->Read(std::span(text).subspan(have)));
    if (got == 0) break;
    have += got;
  }
  text.resize(have);
  return text;
}

}  // namespace mt::data
