// Everything that a checkpoint directory's files are read by, given damaged and hostile texts: each
// is refused with a reason or read, and what was read can be used. A crash, undefined behaviour
// (the sanitizers' builds run this too), a hang or memory beyond the size of the text is a defect;
// a text that has shown one is kept among the hostile ones. MT_LONG_TESTS: forty times as many.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/files.h"
#include "tests/sanitized.h"
#include "tests/worker/checkpoint/fuzz_mutator.h"
#include "tests/worker/checkpoint/saved_state.h"
#include "tests/worker/checkpoint/temp_dir.h"
#include "worker/checkpoint/format/directory.h"
#include "worker/checkpoint/format/evaluation.h"
#include "worker/checkpoint/format/fence.h"
#include "worker/checkpoint/format/label.h"
#include "worker/checkpoint/format/manifest.h"
#include "worker/checkpoint/format/pin.h"
#include "worker/checkpoint/format/rank_manifest.h"
#include "worker/checkpoint/format/root_marker.h"
#include "worker/checkpoint/format/run_list.h"
#include "worker/checkpoint/format/safetensors.h"
#include "worker/checkpoint/loader.h"

namespace mt::checkpoint {
namespace {

// The largest piece of memory that was asked for since it was set to 0.
std::atomic<size_t> g_largest_bytes{0};

void* Allocate(size_t bytes) {
  size_t largest = g_largest_bytes;
  while (bytes > largest && !g_largest_bytes.compare_exchange_weak(largest, bytes)) {
  }
  return std::malloc(bytes == 0 ? 1 : bytes);
}

}  // namespace
}  // namespace mt::checkpoint

void* operator new(size_t bytes) {
  if (void* const memory = mt::checkpoint::Allocate(bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace mt::checkpoint {
namespace {

// Reads a text as one kind of file.
using ReadText = std::function<Status(std::string_view text)>;

// A refusal is one of two, and says why. What cannot be said is that a text is no such file at all.
void ExpectRefusedOrRead(const Status& status) {
  if (status.ok()) return;
  EXPECT_TRUE(absl::IsDataLoss(status) || absl::IsFailedPrecondition(status)) << status;
  EXPECT_GT(base::Message(status).size(), 10U);
}

// Much less than any text of a mebibyte is worth, and more than a small one needs.
size_t MostBytes(std::string_view text) { return 64 * text.size() + (size_t{1} << 20); }

void ReadHostile(const ReadText& read, const std::string& text) {
  g_largest_bytes = 0;
  ExpectRefusedOrRead(read(text));
  EXPECT_LE(g_largest_bytes.load(), MostBytes(text));
}

Status ReadManifestText(std::string_view text) {
  ASSIGN_OR_RETURN(const Manifest manifest, ParseManifest(text));
  const Status same = CheckSameRun(manifest, "{}");
  EXPECT_TRUE(same.ok() || absl::IsFailedPrecondition(same)) << same;
  return OkStatus();
}

Status ReadRankManifestText(std::string_view text) {
  ASSIGN_OR_RETURN(const TensorTable tensors,
                   ParseRankManifest(text, RankFileName(0), kBlockBytes));
  EXPECT_EQ(ParseRankManifest(RankManifestText(tensors), RankFileName(0), kBlockBytes)->size(),
            tensors.size());
  return OkStatus();
}

// A file that is nowhere.
StatusOr<base::Fd> FileWith(std::string_view bytes) {
  base::Fd fd(::memfd_create("fuzz", MFD_CLOEXEC));
  if (!fd || ::write(fd.get(), bytes.data(), bytes.size()) != std::ssize(bytes))
    return base::Internal("no file in memory");
  return fd;
}

Status ReadShard(std::string_view bytes) {
  ASSIGN_OR_RETURN(
      const SafetensorsReader reader,
      SafetensorsReader::Open("shard", [bytes](const std::string&) { return FileWith(bytes); }));
  for (const auto& [name, entry] : reader.entries()) {
    if (entry.bytes > (1 << 20)) continue;
    std::vector<std::byte> data(static_cast<size_t>(entry.bytes));
    RETURN_IF_ERROR(reader.Read(entry, data));
  }
  return OkStatus();
}

// The header's length goes before it.
std::string ShardOf(std::string_view header, std::string_view data) {
  const uint64_t length = header.size();
  std::string out(8, '\0');
  std::memcpy(out.data(), &length, 8);
  return out.append(header).append(data);
}

Status ReadFenceText(std::string_view text) {
  ASSIGN_OR_RETURN(const Fence fence, ParseFence(text));
  (void)Counts(fence, {10, 1});
  const auto again = ParseFence(ToJson(fence));
  EXPECT_TRUE(again.ok()) << again.status();
  return OkStatus();
}

Status ReadLabelText(std::string_view text) {
  ASSIGN_OR_RETURN(const Label label, ParseLabel(text));
  const auto again = ParseLabel(ToJson(label));
  EXPECT_TRUE(again.ok() && *again == label) << again.status();
  return OkStatus();
}

Status ReadEvaluationText(std::string_view text) {
  ASSIGN_OR_RETURN(const Evaluation evaluation, ParseEvaluation(text));
  const auto again = ParseEvaluation(ToJson(evaluation));
  EXPECT_TRUE(again.ok() && again->step == evaluation.step) << again.status();
  return OkStatus();
}

Status ReadPinText(std::string_view text) {
  const Pin pin = ParsePin(text);
  EXPECT_EQ(ParsePin(ToJson(pin)).reason, pin.reason);
  return OkStatus();
}

Status ReadMarkerText(std::string_view text) {
  ASSIGN_OR_RETURN(const RootMarker marker, ParseRootMarker(text));
  EXPECT_FALSE(marker.id.empty());
  return ParseRootMarker(ToJson(marker)).status();
}

// Every field of a list of runs.
RunList TwoRuns() {
  RunRecord run{.id = "11111111-1111-4111-8111-111111111111", .job_name = "tiny"};
  run.from = RunSource{.run = run.id, .id = {20, 1}, .digest = "xxh3:00"};
  run.epochs = {{1, 3}, {5, 5}};
  RunRecord copy = run;
  copy.id = "22222222-2222-4222-8222-222222222222";
  copy.parent = run.id;
  return {.runs = {run, copy}};
}

Status ReadRunListText(std::string_view text) {
  ASSIGN_OR_RETURN(RunList list, ParseRunList(text));
  for (RunRecord& run : list.runs) AddEpoch(4, &run);
  (void)RunOfEpoch(list, 4);
  return ParseRunList(ToJson(list)).status();
}

class FuzzTest : public ::testing::Test {
 protected:
  // A real checkpoint's files of this name's end, whole.
  std::vector<std::string> Saved(std::string_view end) const {
    std::vector<std::string> texts;
    for (const Cut cut : {Cut::kWhole, Cut::kBuckets}) {
      const TempDir dir;
      const std::string folder = SaveState(dir.path(), MakeState(), cut);
      for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        if (entry.path().string().ends_with(end))
          texts.push_back(base::ReadFile(entry.path().string()).value());
      }
    }
    EXPECT_FALSE(texts.empty()) << end;
    return texts;
  }

  // Those of ranks; the checkpoint's own is no such one.
  std::vector<std::string> RankManifests() const {
    std::vector<std::string> texts = Saved(".json");
    std::erase_if(texts, [](const std::string& text) { return ParseManifest(text).ok(); });
    EXPECT_FALSE(texts.empty());
    return texts;
  }

  // Mutations of the texts, each of which is read as it is.
  static void Fuzz(const std::vector<std::string>& texts, const ReadText& read) {
    const bool more = std::getenv("MT_LONG_TESTS") != nullptr;
    const int count = (kSanitized ? 1000 : 10000) * (more ? 40 : 1);
    for (const std::string& text : texts) {
      const Status status = read(text);
      EXPECT_TRUE(status.ok()) << status;
    }
    Mutator mutator(20261123);
    for (int i = 0; i < count && !HasFailure(); ++i) {
      const std::string text =
          mutator.Mutate(texts[mutator.Below(texts.size())], texts[mutator.Below(texts.size())]);
      ReadHostile(read, text);
      EXPECT_FALSE(HasFailure()) << "text " << i << ": " << text.substr(0, 2000);
    }
  }
};

TEST_F(FuzzTest, Manifests) { Fuzz(Saved("manifest.json"), ReadManifestText); }

TEST_F(FuzzTest, ManifestsOfRanks) { Fuzz(RankManifests(), ReadRankManifestText); }

// Of any block size, each slice has as many digests as it has blocks.
TEST_F(FuzzTest, SizesOfBlocks) {
  for (const std::string& text : RankManifests()) {
    for (int64_t block = 1; block < (int64_t{1} << 40); block *= 2)
      ReadHostile(
          [block](std::string_view read) {
            return ParseRankManifest(read, RankFileName(0), block).status();
          },
          text);
  }
}

TEST_F(FuzzTest, ShardHeaders) {
  std::vector<std::string> headers, data;
  for (const std::string& shard : Saved(".safetensors")) {
    uint64_t length = 0;
    std::memcpy(&length, shard.data(), 8);
    headers.push_back(shard.substr(8, length));
    data.push_back(shard.substr(8 + length));
  }
  const std::string longest = *std::ranges::max_element(data, {}, &std::string::size);
  Fuzz(headers, [&](std::string_view header) { return ReadShard(ShardOf(header, longest)); });
}

TEST_F(FuzzTest, Shards) { Fuzz(Saved(".safetensors"), ReadShard); }

// What claims to be large is refused before memory is taken for it. The file has holes, no bytes.
TEST_F(FuzzTest, AHeaderThatClaimsAGigabyteTakesNoMemory) {
  for (const uint64_t claimed : {uint64_t{1} << 30, uint64_t{1} << 62, uint64_t{1} << 63,
                                 ~uint64_t{0}, uint64_t{100 << 20} + 1}) {
    g_largest_bytes = 0;
    const auto reader =
        SafetensorsReader::Open("shard", [claimed](const std::string&) -> StatusOr<base::Fd> {
          ASSIGN_OR_RETURN(base::Fd fd, FileWith({reinterpret_cast<const char*>(&claimed), 8}));
          if (::ftruncate(fd.get(), int64_t{1} << 31) != 0) return base::Internal("no large file");
          return fd;
        });
    EXPECT_TRUE(absl::IsDataLoss(reader.status())) << reader.status();
    EXPECT_LT(g_largest_bytes.load(), size_t{1} << 20);
  }
}

// A key of nothing was looked up as the object itself, without end; one with dots as a path.
TEST_F(FuzzTest, KeysOfASpecAreNoPaths) {
  const auto spec = [](const std::string& model) {
    Manifest manifest;
    manifest.spec_json = R"({"model": )" + model + "}";
    return manifest;
  };
  for (const std::string model : {R"({"": {"a": 1}})", R"({"a.b": 1, "a": {"b": 2}})"}) {
    EXPECT_TRUE(CheckSameRun(spec(model), spec(model).spec_json).ok());
    const Status other = CheckSameRun(spec(model), R"({"model": {"a": {"b": 2}}})");
    EXPECT_TRUE(absl::IsFailedPrecondition(other)) << other;
  }
}

// Texts that have shown defects, each as every kind of file: nesting that a function follows by
// calling itself, numbers beyond the type that they are read into.
TEST_F(FuzzTest, HostileTextsOfThePast) {
  const std::string open(200'000, '['), close(200'000, ']');
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  objects += "0" + std::string(100'000, '}');
  std::vector<std::string> values = {open + close,           open,  objects, "1e300", "1.5", "-1",
                                     "18446744073709551615", "null"};
  std::vector<std::pair<std::string, ReadText>> kinds = {
      {Saved("manifest.json").front(), ReadManifestText},
      {RankManifests().front(), ReadRankManifestText},
      {ToJson(Fence{.job_uid = "job", .bases = {{1, CheckpointId{2, 1}}}}), ReadFenceText},
      {ToJson(Label{.tag = "best", .meta = {{"a", "b"}}}), ReadLabelText},
      {ToJson(Evaluation{.split = "valid"}), ReadEvaluationText},
      {ToJson(Pin{.reason = "kept"}), ReadPinText},
      {ToJson(RootMarker{.id = "a", .node = "n"}), ReadMarkerText},
      {ToJson(TwoRuns()), ReadRunListText},
      {R"({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})",
       [](std::string_view header) { return ReadShard(ShardOf(header, "1234")); }}};
  for (const auto& [text, read] : kinds) {
    EXPECT_TRUE(read(text).ok()) << text;
    for (const std::string& value : values) {
      ReadHostile(read, value);
      // In the place of each value of an object.
      for (size_t at = text.find("\":"); at != std::string::npos; at = text.find("\":", at + 1)) {
        const size_t begin = text.find_first_not_of(" \n", at + 2);
        const size_t end = text.find_first_of(",}]\n", begin);
        ReadHostile(read, text.substr(0, begin) + value + text.substr(end));
      }
    }
  }
}

// The next epoch is one more than the highest one, which a damaged name or file makes.
TEST_F(FuzzTest, AnEpochAtTheEndOfItsRangeRaisesNoFence) {
  for (const bool by_name : {true, false}) {
    const TempDir dir;
    const int64_t last = std::numeric_limits<int64_t>::max();
    if (by_name) {
      ASSERT_TRUE(std::filesystem::create_directory(dir.File(FolderName({1, last}))));
    } else {
      ASSERT_TRUE(
          base::WriteFileAtomic(dir.File("FENCE"), ToJson(Fence{.directory_epoch = last})).ok());
    }
    const Status raised =
        RaiseFence({.directory = dir.path(), .job_uid = "job", .epoch = 1}).status();
    EXPECT_TRUE(absl::IsDataLoss(raised)) << raised;
  }
}

TEST_F(FuzzTest, Fences) {
  Fence fence{.job_uid = "job", .epoch = 3, .directory_epoch = 2};
  fence.holder = {.host = "host", .pid = 17, .boot_id = "boot"};
  fence.token = "0123456789abcdef";
  fence.bases = {{1, std::nullopt}, {2, CheckpointId{10, 1}}};
  Fuzz({ToJson(fence), ToJson(Fence{})}, ReadFenceText);
}

TEST_F(FuzzTest, Labels) {
  Fuzz({ToJson(Label{.tag = "best", .meta = {{"a", "b"}, {"c", "d"}}}), ToJson(Label{})},
       ReadLabelText);
}

TEST_F(FuzzTest, Evaluations) {
  Fuzz({ToJson(Evaluation{.split = "valid", .step = 8, .loss = 2.5, .tokens = 4096}),
        ToJson(Evaluation{.split = "valid", .step = 8, .loss = 2.5, .bits_per_byte = 1.25})},
       ReadEvaluationText);
}

TEST_F(FuzzTest, Pins) {
  Fuzz({ToJson(Pin{.reason = "kept", .made = "2026-11-23T00:00:00Z"})}, ReadPinText);
}

TEST_F(FuzzTest, RunLists) { Fuzz({ToJson(TwoRuns()), ToJson(RunList())}, ReadRunListText); }

TEST_F(FuzzTest, RootMarkers) {
  Fuzz({ToJson(RootMarker{.id = "a-1", .made = "2026-11-23T00:00:00Z", .node = "n"})},
       ReadMarkerText);
}

}  // namespace
}  // namespace mt::checkpoint
