// Memory that processes of one GPU share: what one names another one maps, writes and orders by
// words, whatever becomes of who has named it; and what is shared is memory like any other.
#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <future>
#include <memory>
#include <poll.h>
#include <spawn.h>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>

#include "common/base/files.h"
#include "tests/kernels/cuda/twin.h"

namespace mt::kernels::cuda {
namespace {

using testing::HasSubstr;

constexpr const char* kExporterVariable = "MT_TEST_EXPORTER";
constexpr int64_t kSharedElements = int64_t{16} << 20, kSharedBytes = 4 * kSharedElements;
constexpr int64_t kOffset = 4096;
constexpr float kExported = 3, kImported = 7;
constexpr uint32_t kWord = 5;
// Of the process that exports: where it tells names and answers, a line each.
constexpr int kAnswers = 3;

Tensor AsShared(void* data) { return {data, DType::kF32, {kSharedElements}}; }

// Whether all elements have this value.
bool AllAre(void* data, float value) {
  std::vector<float> on_host(kSharedElements);
  Stream& stream = StreamOf(Side::kGpu);
  BackendOf(Side::kGpu).device().Copy(stream, on_host.data(), data, kSharedBytes);
  stream.Synchronize();
  return std::count(on_host.begin(), on_host.end(), value) == kSharedElements;
}

void Tell(const std::string& line) {
  const std::string text = line + "\n";
  if (::write(kAnswers, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    std::_Exit(1);
}

// The process that exports: tells three names, of its memory, of a place in that and of a word;
// then waits for the word and says whether the memory has become what it should, once it is asked.
[[noreturn]] void Serve() {
  Backend& gpu = BackendOf(Side::kGpu);
  Stream& stream = StreamOf(Side::kGpu);
  const auto data = gpu.device().Allocate(kSharedBytes, MemoryKind::kShared);
  const auto word = gpu.device().Allocate(sizeof(uint32_t), MemoryKind::kShared);
  gpu.vector().Fill(stream, AsShared(data->data()), kExported);
  gpu.device().Zero(stream, word->data(), word->bytes());
  stream.Synchronize();
  for (void* const at :
       {data->data(), static_cast<void*>(static_cast<char*>(data->data()) + kOffset),
        word->data()}) {
    std::string why_not;
    const std::string name = gpu.device().peers()->Export(at, &why_not);
    Tell(name.empty() ? why_not : name);
  }
  char question = 0;
  while (::read(STDIN_FILENO, &question, 1) == 1) {
    stream.WaitValue(static_cast<uint32_t*>(word->data()), kWord);
    Tell(AllAre(data->data(), kImported) ? "yes" : "no");
  }
  std::_Exit(0);
}

// This program once more, as the process that exports.
class Exporter {
 public:
  Exporter() {
    std::array<int, 2> questions{}, answers{};
    EXPECT_EQ(::pipe(questions.data()), 0);
    EXPECT_EQ(::pipe(answers.data()), 0);
    base::Fd question_end(questions[0]), answer_end(answers[1]);
    questions_.Reset(questions[1]);
    answers_.Reset(answers[0]);
    std::vector<std::string> variables = {std::string(kExporterVariable) + "=1"};
    for (char** variable = environ; *variable != nullptr; ++variable) {
      if (std::strncmp(*variable, "GTEST_", 6) != 0) variables.emplace_back(*variable);
    }
    std::vector<char*> environment;
    for (std::string& variable : variables) environment.push_back(variable.data());
    environment.push_back(nullptr);
    std::string program = "/proc/self/exe", filter = "--gtest_filter=PeerMemoryTest.IsWhat*";
    const std::array<char*, 3> words = {program.data(), filter.data(), nullptr};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, question_end.get(), STDIN_FILENO);
    posix_spawn_file_actions_addclose(&actions, questions_.get());
    posix_spawn_file_actions_adddup2(&actions, answer_end.get(), kAnswers);
    EXPECT_EQ(
        ::posix_spawn(&pid_, program.c_str(), &actions, nullptr, words.data(), environment.data()),
        0);
    posix_spawn_file_actions_destroy(&actions);
    answer_end.Reset();
    for (std::string& name : names_) name = Hear();
  }
  ~Exporter() { Kill(); }
  Exporter(const Exporter&) = delete;
  Exporter& operator=(const Exporter&) = delete;

  // Of its memory, of the place kOffset in it, of its word.
  const std::string& data() const { return names_[0]; }
  const std::string& place() const { return names_[1]; }
  const std::string& word() const { return names_[2]; }
  std::string Ask() {
    EXPECT_EQ(::write(questions_.get(), "?", 1), 1);
    return Hear();
  }
  void Kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  // A line, without its end; what there is of it, where it does not come within a minute.
  std::string Hear() {
    constexpr int kPatienceMs = 60000;
    std::string line;
    pollfd ready{answers_.get(), POLLIN, 0};
    for (char c = 0; ::poll(&ready, 1, kPatienceMs) > 0;) {
      if (::read(answers_.get(), &c, 1) != 1 || c == '\n') break;
      line += c;
    }
    return line;
  }

  pid_t pid_ = 0;
  base::Fd questions_, answers_;
  std::array<std::string, 3> names_;
};

class PeerMemoryTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    if (std::getenv(kExporterVariable) != nullptr) Serve();  // NOLINT(concurrency-mt-unsafe)
    const auto any = device().Allocate(1, MemoryKind::kShared);
    std::string why_not;
    if (!peers().Export(any->data(), &why_not).empty()) return;
    if (why_not == "the driver names no memory of this GPU by file descriptors")
      GTEST_SKIP() << why_not;
    FAIL() << why_not;
  }
  static Device& device() { return BackendOf(Side::kGpu).device(); }
  static PeerMemory& peers() { return *device().peers(); }
  static Stream& stream() { return StreamOf(Side::kGpu); }
  // nullptr is a failure of the test.
  static std::unique_ptr<DeviceBuffer> Import(const std::string& name) {
    std::string why_not;
    auto mapped = peers().Import(name, &why_not);
    EXPECT_NE(mapped, nullptr) << name << ": " << why_not;
    return mapped;
  }
};

TEST_F(PeerMemoryTest, IsWhatTheOtherProcessHasAndWritesThere) {
  Exporter exporter;
  const auto data = Import(exporter.data()), place = Import(exporter.place()),
             word = Import(exporter.word());
  ASSERT_TRUE(data != nullptr && place != nullptr && word != nullptr);
  EXPECT_EQ(data->bytes(), kSharedBytes);
  EXPECT_EQ(place->bytes(), kSharedBytes - kOffset);
  EXPECT_EQ(word->bytes(), 4) << "without what rounding adds";
  EXPECT_EQ(place->data(), static_cast<char*>(data->data()) + kOffset) << "one mapping for both";
  EXPECT_TRUE(AllAre(data->data(), kExported));
  // A kernel, the copy engine and the word behind them.
  const auto own = device().Allocate(kSharedBytes, MemoryKind::kDevice);
  BackendOf(Side::kGpu).vector().Fill(stream(), AsShared(own->data()), kImported);
  BackendOf(Side::kGpu).vector().Fill(stream(), AsShared(data->data()), kImported + 1);
  device().Copy(stream(), data->data(), own->data(), kSharedBytes);
  stream().WriteValue(static_cast<uint32_t*>(word->data()), kWord);
  EXPECT_EQ(exporter.Ask(), "yes");
  stream().Synchronize();
}

TEST_F(PeerMemoryTest, OutlivesAnExporterThatIsKilledWhileItIsWritten) {
  Exporter exporter;
  auto data = Import(exporter.data());
  auto word = Import(exporter.word());
  ASSERT_TRUE(data != nullptr && word != nullptr);
  const auto own = device().Allocate(kSharedBytes, MemoryKind::kDevice);
  BackendOf(Side::kGpu).vector().Fill(stream(), AsShared(own->data()), kImported);
  constexpr int kCopies = 4000;
  for (int i = 0; i < kCopies; ++i) {
    device().Copy(stream(), data->data(), own->data(), kSharedBytes);
    stream().WriteValue(static_cast<uint32_t*>(word->data()), static_cast<uint32_t>(i));
    if (i == kCopies / 2) exporter.Kill();  // those enqueued before are under way
  }
  EXPECT_NO_THROW(stream().Synchronize());
  EXPECT_TRUE(AllAre(data->data(), kImported));
  // Whoever has it mapped may map it again; the last one to let go gives it back.
  std::string why_not;
  EXPECT_NE(peers().Import(exporter.place(), &why_not), nullptr) << why_not;
  const int64_t free_bytes = device().Memory()->free_bytes;
  for (int i = 0; i < kCopies / 20; ++i)
    device().Copy(stream(), data->data(), own->data(), kSharedBytes);
  data.reset();  // behind all copies, which nobody has waited for
  word.reset();
  EXPECT_NO_THROW(stream().Synchronize());
  EXPECT_GE(device().Memory()->free_bytes, free_bytes + kSharedBytes / 2);
  EXPECT_EQ(peers().Import(exporter.data(), &why_not), nullptr);
  EXPECT_THAT(why_not, HasSubstr("has ended, or runs in another network namespace"));
}

// A pass begins with imports, while earlier work waits for what this host has yet to enqueue.
TEST_F(PeerMemoryTest, MapsWhileTheDeviceWaits) {
  const Exporter exporter;
  const auto word = device().Allocate(sizeof(uint32_t), MemoryKind::kShared);
  device().Zero(stream(), word->data(), word->bytes());
  stream().Synchronize();
  const auto waiting = device().CreateStream(StreamPriority::kLow);
  const auto rescue = device().CreateStream(StreamPriority::kHigh);
  const auto over = device().CreateEvent();
  waiting->WaitValue(static_cast<uint32_t*>(word->data()), 1);
  over->Record(*waiting);
  std::promise<void> mapped;
  std::thread release([&, done = mapped.get_future()] {
    done.wait_for(std::chrono::seconds(10));  // however long the driver would wait
    rescue->WriteValue(static_cast<uint32_t*>(word->data()), 1);
  });
  const auto data = Import(exporter.data());
  EXPECT_FALSE(over->IsDone()) << "the import has waited for the device";
  mapped.set_value();
  release.join();
  waiting->Synchronize();
  EXPECT_TRUE(data != nullptr && AllAre(data->data(), kExported));
}

TEST_F(PeerMemoryTest, SaysWhatItDoesNotShare) {
  std::string why_not;
  for (const MemoryKind kind : {MemoryKind::kDevice, MemoryKind::kPinnedHost}) {
    const auto plain = device().Allocate(4096, kind);
    EXPECT_EQ(peers().Export(plain->data(), &why_not), "");
    EXPECT_EQ(why_not, "it is not of the kind that is shared");
  }
  auto freed = device().Allocate(4096, MemoryKind::kShared);
  void* const behind = static_cast<char*>(freed->data()) + 4096;  // in what rounding adds
  EXPECT_EQ(peers().Export(behind, &why_not), "");
  const std::string name = peers().Export(freed->data(), &why_not);
  EXPECT_NE(name, "") << why_not;
  freed.reset();
  EXPECT_EQ(peers().Import(name, &why_not), nullptr);
  EXPECT_THAT(why_not, HasSubstr("has none of number"));
  for (const char* nonsense : {"", "fd1 somewhere", "fd2 a 1 4096 0 4096", "fd1 a 1 4096 1 4096",
                               "fd1 a 1 4096 -1 16", "fd1 a 1 -4096 0 16"}) {
    EXPECT_EQ(peers().Import(nonsense, &why_not), nullptr) << nonsense;
    EXPECT_EQ(why_not, "the peer runs another version");
  }
}

TEST_F(PeerMemoryTest, SharedMemoryCountsAsItIsAllocated) {
  const int64_t piece = device().BytesTaken(1, MemoryKind::kShared);
  EXPECT_GT(piece, 1);
  EXPECT_EQ(device().BytesTaken(piece, MemoryKind::kShared), piece);
  EXPECT_EQ(device().BytesTaken(piece + 1, MemoryKind::kShared), 2 * piece);
  EXPECT_EQ(device().BytesTaken(1, MemoryKind::kDevice), 1);
  EXPECT_EQ(device().Allocate(0, MemoryKind::kShared)->bytes(), 0);
  try {
    device().Allocate(int64_t{1} << 45, MemoryKind::kShared);
    FAIL() << "32 TiB were there";
  } catch (const DeviceMemoryError& error) {
    EXPECT_THAT(error.what(), HasSubstr("bytes are free"));
  }
}

// Fills, copies, a GEMM of cuBLASLt and a recording of them, against plain memory.
std::vector<std::byte> ComputeIn(MemoryKind kind) {
  constexpr int64_t kSide = 256, kMatrix = kSide * kSide * 2;
  Backend& gpu = BackendOf(Side::kGpu);
  Stream& stream = StreamOf(Side::kGpu);
  const auto buffer = gpu.device().Allocate(4 * kMatrix, kind);
  const auto matrix = [&](int64_t i) {
    return Tensor{static_cast<char*>(buffer->data()) + i * kMatrix, DType::kBf16, {kSide, kSide}};
  };
  std::vector<uint16_t> values(kSide * kSide);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<uint16_t>(0x3C00 + i * 7919 % 0x300);  // about 0.01 to 1.5
  LinearForwardArgs args{.x = matrix(0), .w = matrix(1), .y = matrix(2)};
  SideScratch scratch(Side::kGpu, gpu.linear().Plan(args));
  args.workspace = scratch.workspace();
  gpu.device().Zero(stream, buffer->data(), buffer->bytes());
  gpu.device().Copy(stream, matrix(0).data, values.data(), kMatrix);
  gpu.device().Copy(stream, matrix(1).data, matrix(0).data, kMatrix);
  gpu.linear().Forward(stream, args);  // chooses what is then recorded
  const auto calls = [&] {
    gpu.linear().Forward(stream, args);
    gpu.vector().AddTo(stream, matrix(3), matrix(2));
  };
  std::string why_not;
  const auto recording = gpu.device().Record(stream, calls, &why_not);
  EXPECT_NE(recording, nullptr) << why_not;
  for (int i = 0; i < 3 && recording != nullptr; ++i) recording->Launch(stream);
  std::vector<std::byte> out(static_cast<size_t>(4 * kMatrix));
  gpu.device().Copy(stream, out.data(), buffer->data(), 4 * kMatrix);
  stream.Synchronize();
  return out;
}

TEST_F(PeerMemoryTest, SharedMemoryComputesAsAnyOther) {
  const std::vector<std::byte> plain = ComputeIn(MemoryKind::kDevice);
  EXPECT_NE(plain.back(), std::byte{});
  EXPECT_EQ(ComputeIn(MemoryKind::kShared), plain);
}

}  // namespace
}  // namespace mt::kernels::cuda
