// Model files of llm.c that are cut, too long, padded otherwise, or none: each is refused with the
// byte named, or said. And a fuzzer of headers, which scripts/fuzz.sh runs for longer.
#include "common/base/files.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include "tests/fuzz_time.h"
#include "tests/worker/checkpoint/fuzz_mutator.h"
#include "tests/worker/checkpoint/temp_dir.h"
#include "worker/llmc/model_file.h"

namespace mt::llmc {
namespace {

using checkpoint::Mutator;
using checkpoint::TempDir;

std::string GoldenBytes(const std::string& name) {
  return base::ReadFile(std::string(MT_GOLDEN_LLMC) + "/" + name).value();
}

// A file that is nowhere.
StatusOr<base::Fd> FileWith(std::string_view bytes) {
  base::Fd fd(::memfd_create("fuzz", MFD_CLOEXEC));
  if (!fd || ::write(fd.get(), bytes.data(), bytes.size()) != std::ssize(bytes))
    return base::Internal("no file in memory");
  return fd;
}

StatusOr<ModelFile> OpenBytes(const std::string& bytes, int64_t read_bytes = kReadBytes) {
  return ModelFile::Open(
      "small.bin", [&](const std::string&) { return FileWith(bytes); }, read_bytes);
}

std::string WithWord(std::string bytes, size_t word, int32_t value) {
  std::memcpy(bytes.data() + 4 * word, &value, sizeof(value));
  return bytes;
}

void ExpectRefused(const std::string& bytes, const std::vector<std::string>& texts) {
  const Status status = OpenBytes(bytes).status();
  EXPECT_FALSE(status.ok());
  for (const std::string& text : texts)
    EXPECT_NE(base::Message(status).find(text), std::string::npos) << text << " in " << status;
}

// T 20, V 100, Vp 128, L 3, C 16: wte ends at byte 9216, wpe at 10496.
TEST(LlmcFiles, CutAndLongerOnesAreRefusedWithTheByte) {
  const std::string good = GoldenBytes("small_f32.bin");
  EXPECT_TRUE(OpenBytes(good).ok()) << OpenBytes(good).status();
  ExpectRefused("", {"small.bin", "0 bytes", "1024"});
  ExpectRefused(good.substr(0, 1000), {"1000 bytes", "1024"});
  ExpectRefused(good.substr(0, 1024), {"ends at byte 1024, in wte (bytes 1024 to 9216)", "49984"});
  ExpectRefused(good.substr(0, 9216), {"ends at byte 9216, in wpe (bytes 9216 to 10496)"});
  ExpectRefused(good.substr(0, good.size() - 1),
                {"ends at byte 49983, in lnfb (bytes 49920 to", "copy it again"});
  EXPECT_TRUE(absl::IsDataLoss(OpenBytes(good.substr(0, good.size() - 1)).status()));
  ExpectRefused(good + "more", {"ends at byte 49984", "4 bytes follow"});
  // A file of the other version, and a header that asks for what no memory has.
  ExpectRefused(WithWord(good, 1, 5), {"ends at byte 25504", "24480 bytes follow"});
  ExpectRefused(WithWord(good, 4, 16384), {"ends at byte 49984"});
  ExpectRefused(WithWord(good, 2, 16777216), {"in wpe (bytes 9216 to 1073751040)"});
  ExpectRefused("{\"model_type\": \"gpt2\"}" + std::string(2000, ' '), {"no model file of llm.c"});
  const TempDir dir;
  const Status folder = ModelFile::Open(dir.path()).status();
  EXPECT_NE(base::Message(folder).find("is a folder"), std::string::npos) << folder;
  EXPECT_TRUE(absl::IsNotFound(ModelFile::Open(dir.File("missing.bin")).status()));
}

// Nobody writes to it, and nobody is waited for.
TEST(LlmcFiles, APipeIsNotWaitedFor) {
  const TempDir dir;
  ASSERT_EQ(::mkfifo(dir.File("pipe.bin").c_str(), 0600), 0);
  std::filesystem::create_symlink("pipe.bin", dir.File("link.bin"));
  for (const char* const name : {"pipe.bin", "link.bin"}) {
    const Status status = ModelFile::Open(dir.File(name)).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_NE(base::Message(status).find("no regular file"), std::string::npos) << status;
  }
  ASSERT_TRUE(base::WriteFileAtomic(dir.File("a.bin"), GoldenBytes("small_f32.bin")).ok());
  std::filesystem::create_symlink("a.bin", dir.File("good.bin"));
  EXPECT_TRUE(ModelFile::Open(dir.File("good.bin")).ok()) << "links are followed";
}

TEST(LlmcFiles, OfAPartOfAHuggingFaceModelTheFolderIsNamed) {
  const TempDir dir;
  const std::string text(2000, '{');
  for (const char* const name :
       {"config.json", "model-00001-of-00002.safetensors", "model.safetensors.index.json"}) {
    ASSERT_TRUE(base::WriteFileAtomic(dir.File(name), text).ok());
    const std::string why = base::Message(ModelFile::Open(dir.File(name)).status());
    EXPECT_NE(why.find("no model file of llm.c"), std::string::npos) << why;
    EXPECT_NE(why.find("name the folder, " + dir.path() + " (in a job"), std::string::npos) << why;
  }
  ASSERT_TRUE(base::WriteFileAtomic(dir.File("model.bin"), text).ok());
  const std::string why = base::Message(ModelFile::Open(dir.File("model.bin")).status());
  EXPECT_EQ(why.find("the folder"), std::string::npos) << why;
}

TEST(LlmcFiles, PaddingIsLeftOut) {
  const std::string good = GoldenBytes("small_f32.bin");
  // Row 100 of the word table, the first of the padding.
  const auto padded = OpenBytes(WithWord(good, (1024 + 100 * 64) / 4, 0x3F800000));
  ASSERT_TRUE(padded.ok()) << padded.status();
  ASSERT_EQ(padded->notes().size(), 1U);
  EXPECT_NE(padded->notes()[0].find("byte 7426"), std::string::npos) << padded->notes()[0];
  EXPECT_EQ(padded->parameters().at("embedding.word.weight"), (hf::Shape{100, 16}));
  // In the last element of the padding, whatever is read at once.
  const std::string last = WithWord(good, (1024 + 127 * 64 + 60) / 4, 0x3F800000);
  for (const int64_t read_bytes : {kReadBytes, int64_t{40}}) {
    const auto noted = OpenBytes(last, read_bytes);
    ASSERT_TRUE(noted.ok()) << noted.status();
    ASSERT_EQ(noted->notes().size(), 1U) << read_bytes;
    EXPECT_NE(noted->notes()[0].find("byte 9214"), std::string::npos) << noted->notes()[0];
    EXPECT_TRUE(OpenBytes(good, read_bytes)->notes().empty());
  }
  // Without padding all rows are tokens.
  const auto whole = OpenBytes(WithWord(good, 3, 128));
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_TRUE(whole->notes().empty());
  EXPECT_EQ(whole->parameters().at("embedding.word.weight"), (hf::Shape{128, 16}));
}

TEST(LlmcFiles, OneThatIsCutMeanwhileIsDamaged) {
  const TempDir dir;
  ASSERT_TRUE(base::WriteFileAtomic(dir.File("a.bin"), GoldenBytes("small_bf16.bin")).ok());
  const auto file = ModelFile::Open(dir.File("a.bin"));
  ASSERT_TRUE(file.ok()) << file.status();
  std::filesystem::resize_file(dir.File("a.bin"), 20000);
  std::array<float, 16> gain{};
  const Status read = file->Read("final_norm.weight", {{0}, {16}}, "F32",
                                 reinterpret_cast<std::byte*>(gain.data()));
  EXPECT_TRUE(absl::IsDataLoss(read)) << read;
}

// Two files of one shape: what a digest of all would tell, the ends of the tensors do.
TEST(LlmcFiles, TheFingerprintIsOfEveryTensor) {
  const std::string good = GoldenBytes("small_f32.bin");
  const std::string print = OpenBytes(good)->Fingerprint().value();
  EXPECT_EQ(OpenBytes(good)->Fingerprint().value(), print);
  const auto file = OpenBytes(good);
  const Header& header = file->header();
  int64_t at = kHeaderBytes;
  for (const Stack& stack : StacksOf(header)) {
    std::string other = good;
    other[static_cast<size_t>(at)] = static_cast<char>(other[static_cast<size_t>(at)] ^ 1);
    EXPECT_NE(OpenBytes(other)->Fingerprint().value(), print) << stack.name;
    at += 4 * stack.elements;
  }
  // The same bytes with other padding are another model.
  EXPECT_NE(OpenBytes(WithWord(good, 3, 128))->Fingerprint().value(), print);
}

TEST(LlmcFilesDeathTest, ABoxThatLeavesItsParameter) {
  const auto file = OpenBytes(GoldenBytes("small_f32.bin"));
  ASSERT_TRUE(file.ok()) << file.status();
  std::vector<std::byte> out(1 << 16);
  const auto read = [&](const std::string& name, const checkpoint::Box& box) {
    (void)file->Read(name, box, "F32", out.data());
  };
  EXPECT_DEATH(read("final_norm.gain", {{0}, {16}}), "no parameter final_norm.gain");
  EXPECT_DEATH(read("final_norm.weight", {{1}, {16}}), "final_norm.weight, dim 0");
  EXPECT_DEATH(read("layers.0.ffn.up.weight", {{0, -1}, {1, 2}}), "ffn.up.weight, dim 1");
  EXPECT_DEATH(read("layers.0.ffn.up.weight", {{0, 8}, {64, 9}}), "ffn.up.weight, dim 1");
  EXPECT_DEATH(read("layers.0.ffn.up.weight", {{0}, {64}}), "ffn.up.weight");
}

// A header of a random small model, of which more than half are lawful.
std::string SmallHeader(Mutator* random) {
  const auto from_1 = [random](size_t most) {
    return static_cast<int64_t>(1 + random->Below(most));
  };
  Header header{.version = random->Below(2) == 0 ? Version::kF32 : Version::kBf16};
  header.positions = from_1(20);
  header.vocab = from_1(200);
  header.layers = from_1(4);
  header.heads = from_1(4);
  header.hidden = header.heads * 2 * from_1(6) + (random->Below(8) == 0 ? 1 : 0);
  header.padded_vocab = header.vocab + static_cast<int64_t>(random->Below(100)) - 5;
  return HeaderText(header);
}

// Reads all of a file of that many bytes.
void ExpectWhole(const ModelFile& file, int64_t bytes) {
  EXPECT_EQ(FileBytes(file.header()), bytes);
  for (const auto& [name, shape] : file.parameters()) {
    int64_t count = 1;
    for (const int64_t dim : shape) count *= dim;
    ASSERT_LE(4 * count, 2 * bytes) << name;
    std::vector<float> values(static_cast<size_t>(count));
    EXPECT_TRUE(file.Read(name, {hf::Shape(shape.size()), shape}, "F32",
                          reinterpret_cast<std::byte*>(values.data()))
                    .ok());
  }
  EXPECT_TRUE(file.Fingerprint().ok());
}

// Every file is read or refused; what was read has its parameters.
TEST(LlmcFuzzTest, Headers) {
  const std::vector<std::string> files = {GoldenBytes("small_f32.bin"),
                                          GoldenBytes("small_bf16.bin")};
  FuzzTime time(3000, 20261133);
  Mutator mutator(time.seed());
  int64_t others = 0;  // read, of other sizes than the goldens'
  while (time.Next()) {
    std::string bytes;
    if (mutator.Below(4) == 0) {
      bytes = SmallHeader(&mutator);
    } else {
      const std::string& a = files[mutator.Below(2)];
      const std::string& b = files[mutator.Below(2)];
      // The words that say something, or all of the file.
      const size_t changed = mutator.Below(8) == 0 ? a.size() : 32;
      bytes = mutator.Mutate(a.substr(0, changed), b.substr(0, changed)) + a.substr(changed);
    }
    // Half of the files are as long as their header says, where that is no more than this.
    constexpr int64_t kLongest = int64_t{1} << 20;
    const auto header = ParseHeader(std::as_bytes(std::span(bytes)));
    if (header.ok() && mutator.Below(2) == 0 && FileBytes(*header) < kLongest)
      bytes.resize(static_cast<size_t>(FileBytes(*header)), '\x3C');
    const int64_t read_bytes = mutator.Below(2) == 0 ? kReadBytes : 40;
    const auto file = OpenBytes(bytes, read_bytes);
    if (!file.ok()) {
      EXPECT_GT(base::Message(file.status()).size(), 10U);
      continue;
    }
    ASSERT_NO_FATAL_FAILURE(ExpectWhole(*file, std::ssize(bytes)));
    if (bytes.size() != files[0].size() && bytes.size() != files[1].size()) ++others;
  }
  EXPECT_TRUE(others >= time.round() / 40 || time.round() < 1000) << others << " other shapes";
}

}  // namespace
}  // namespace mt::llmc
