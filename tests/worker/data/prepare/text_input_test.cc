// Inputs as streams: packed ones in members of any number, damage at any byte, what is refused.
#include "worker/data/prepare/text_input.h"

#include <unistd.h>

#include <gmock/gmock.h>

#include "tests/worker/data/prepare/packed.h"
#include "tests/worker/data/temp_data.h"

namespace mt::data {
namespace {

using ::testing::HasSubstr;

class TextInputTest : public ::testing::Test {
 protected:
  StatusOr<std::string> ReadAll(const std::string& path, size_t piece = 100, int64_t skip = 0) {
    ASSIGN_OR_RETURN(const auto input, TextInput::Open(path));
    RETURN_IF_ERROR(input->Skip(skip));
    std::string text;
    std::string buffer(piece, '\0');
    for (;;) {
      ASSIGN_OR_RETURN(const size_t got, input->Read(buffer));
      if (got == 0) return text;
      text.append(buffer, 0, got);
    }
  }
  std::string File(const std::string& bytes) {
    WriteText(dir_.Path("file"), bytes);
    return dir_.Path("file");
  }

  TempDir dir_;
  const std::string text_ = [] {
    std::string text;
    for (int i = 0; i < 3000; ++i) text += "line " + std::to_string(i * i) + "\n";
    return text;
  }();
};

TEST_F(TextInputTest, ReadsEachForm) {
  const std::string half = text_.substr(0, text_.size() / 2);
  const std::string rest = text_.substr(half.size());
  for (const std::string& bytes :
       {text_, Gzip(text_), Zstd(text_), Gzip(half) + Gzip("") + Gzip(rest),
        Zstd(half) + Zstd("") + Zstd(rest), Gzip(text_) + std::string(100, '\0')}) {
    for (const size_t piece : {size_t{1}, size_t{999}, size_t{1} << 20}) {
      const auto read = ReadAll(File(bytes), piece);
      ASSERT_TRUE(read.ok()) << read.status();
      EXPECT_EQ(*read, text_);
    }
    const auto rest_read = ReadAll(File(bytes), 100, 12345);
    ASSERT_TRUE(rest_read.ok()) << rest_read.status();
    EXPECT_EQ(*rest_read, text_.substr(12345));
    EXPECT_FALSE(ReadAll(File(bytes), 100, std::ssize(text_) + 1).ok());
    EXPECT_EQ(*InputBeginning(File(bytes), 10), text_.substr(0, 10));
  }
  for (const std::string& bytes : {std::string(), Gzip(""), Zstd(""), std::string("a")})
    EXPECT_EQ(*ReadAll(File(bytes)), bytes == "a" ? "a" : "");
}

TEST_F(TextInputTest, CutOffAndDamagedFilesAreRefusedAtAnyByte) {
  for (const std::string& whole : {Gzip(text_), Zstd(text_)}) {
    for (size_t size = 5; size < whole.size(); size += 1 + whole.size() / 97) {
      const auto read = ReadAll(File(whole.substr(0, size)));
      EXPECT_TRUE(absl::IsDataLoss(read.status())) << size << " of " << whole.size();
      EXPECT_THAT(base::Message(read.status()), HasSubstr(dir_.Path("file")));
    }
    for (size_t at = 20; at < whole.size(); at += 1 + whole.size() / 97) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
      const auto read = ReadAll(File(damaged));
      // zstd's frames carry no sum of their content unless asked: damage may pass as other text.
      EXPECT_TRUE(read.ok() ? whole.starts_with("\x28") : absl::IsDataLoss(read.status()))
          << at << read.status();
    }
    EXPECT_FALSE(ReadAll(File(whole + "more")).ok());
  }
}

TEST_F(TextInputTest, WhatIsNotReadSaysWhatToDo) {
  const auto refused = [&](const std::string& bytes) {
    return base::Message(ReadAll(File(bytes)).status());
  };
  EXPECT_THAT(refused("PAR1\x15\x04"), HasSubstr("is Parquet, which is not read"));
  EXPECT_THAT(refused("PAR1\x15\x04"), HasSubstr("read_parquet(\"" + dir_.Path("file") + "\")"));
  EXPECT_THAT(refused("\xFD"
                      "7zXZ"),
              HasSubstr("unxz -k"));
  EXPECT_THAT(refused("BZh91AY"), HasSubstr("bunzip2"));
  EXPECT_THAT(refused("PK\x03\x04"), HasSubstr("unzip"));
  EXPECT_THAT(base::Message(ReadAll("/dev/null").status()), HasSubstr("not a regular file"));
  EXPECT_TRUE(absl::IsNotFound(ReadAll(dir_.Path("none")).status()));
}

TEST_F(TextInputTest, StandardInput) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const std::string packed = Gzip("from a pipe");
  ASSERT_EQ(::write(ends[1], packed.data(), packed.size()), std::ssize(packed));
  ::close(ends[1]);
  const int kept = ::dup(STDIN_FILENO);
  ::dup2(ends[0], STDIN_FILENO);
  const auto read = ReadAll("-");
  ::dup2(kept, STDIN_FILENO);
  ::close(kept);
  ::close(ends[0]);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, "from a pipe");
}

}  // namespace
}  // namespace mt::data
