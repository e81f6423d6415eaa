// Matrices that are stored in parts of equal columns: which boxes are, what lies in the file
// against columns that are cut here, from host memory and from memory that is read in pieces, with
// gaps and without; and all that reads them again.
#include "worker/checkpoint/format/column_parts.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <random>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/base/files.h"
#include "tests/worker/checkpoint/saved_state.h"
#include "tests/worker/checkpoint/temp_dir.h"
#include "worker/checkpoint/format/directory.h"
#include "worker/checkpoint/format/whole_manifest.h"
#include "worker/checkpoint/inspect/diff.h"
#include "worker/checkpoint/inspect/verify.h"
#include "worker/checkpoint/loader.h"
#include "worker/checkpoint/writer.h"

namespace mt::checkpoint {
namespace {

using Dims = std::vector<int64_t>;

TEST(ColumnPartsTest, OfTheWholeMatrixWhateverTheBox) {
  const Dims matrix = {1024, 4096};  // 512 columns to a part
  const auto parts = [&](const Dims& offset, const Dims& shape) {
    return NumColumnParts(matrix, offset, shape, 4);
  };
  EXPECT_EQ(parts({0, 0}, {1024, 4096}), 8);
  EXPECT_EQ(parts({0, 2048}, {1024, 2048}), 4);
  EXPECT_EQ(parts({0, 3584}, {1024, 512}), 1);
  EXPECT_EQ(parts({0, 512}, {1024, 1536}), 3) << "any number of whole parts";
  EXPECT_EQ(parts({128, 0}, {128, 4096}), 8) << "256 KiB each";
  EXPECT_EQ(parts({128, 0}, {127, 4096}), 1) << "less";
  EXPECT_EQ(parts({0, 256}, {1024, 256}), 1) << "a sixteenth";
  EXPECT_EQ(parts({0, 256}, {1024, 1024}), 1) << "begins within a part";
  EXPECT_EQ(parts({0, 512}, {1024, 768}), 1) << "ends within a part";
  EXPECT_EQ(NumColumnParts({4096, 4100}, {0, 0}, {4096, 4100}, 4), 1) << "does not divide";
  EXPECT_EQ(NumColumnParts({64, 4096}, {0, 0}, {64, 4096}, 8), 8) << "bytes, not elements";
  EXPECT_EQ(NumColumnParts({1 << 24}, {0}, {1 << 24}, 4), 1) << "a vector";
  EXPECT_EQ(NumColumnParts({4096, 0}, {0, 0}, {4096, 0}, 4), 1) << "nothing";
}

TEST(ColumnPartsTest, PiecesOfAnyLengthAreCut) {
  std::mt19937 random(5);
  for (const int64_t parts : {1, 2, 3, 8}) {
    constexpr int64_t kRows = 7, kPartBytes = 5;
    const int64_t row_bytes = parts * kPartBytes;
    std::string matrix(static_cast<size_t>(kRows * row_bytes), '\0');
    for (char& byte : matrix) byte = static_cast<char>(random());
    for (int round = 0; round < 20; ++round) {
      ColumnCutter cutter(row_bytes, parts);
      std::vector<std::string> got(static_cast<size_t>(parts));
      for (size_t at = 0; at < matrix.size();) {
        const std::string_view piece = std::string_view(matrix).substr(at, random() % 60);
        for (int64_t p = 0; p < parts; ++p) got[static_cast<size_t>(p)] += cutter.Cut(piece, p);
        cutter.Advance(piece);
        at += piece.size();
      }
      for (int64_t p = 0; p < parts; ++p) {
        std::string want;
        for (int64_t row = 0; row < kRows; ++row)
          want += matrix.substr(static_cast<size_t>(row * row_bytes + p * kPartBytes), kPartBytes);
        EXPECT_EQ(got[static_cast<size_t>(p)], want) << parts << " " << p;
      }
    }
  }
}

// Memory that is not the host's: read and written through copies.
class PiecesOfDevice final : public PieceReader {
 public:
  void Start(const void* data, int64_t bytes) override {
    EXPECT_LE(bytes, kLargestPieceBytes);
    pieces_.emplace_back(static_cast<const char*>(data), static_cast<size_t>(bytes));
    bytes_ += bytes;
  }
  const void* Read() override {
    read_ = std::move(pieces_.front());
    pieces_.pop_front();
    return read_.data();
  }
  int64_t bytes() const { return bytes_; }

 private:
  std::deque<std::string> pieces_;
  std::string read_;
  int64_t bytes_ = 0;
};

// Rows of 16,416 bytes, of which the pieces of 8 MiB that are written at once end within one.
constexpr int64_t kRows = 600, kColumns = 4104, kPart = kColumns / 8;
// What stands behind the matrix, cut by no one.
constexpr int64_t kVector = 1000;

float ValueAt(int64_t row, int64_t column) { return static_cast<float>(row * kColumns + column); }

struct Box2 {
  int64_t row = 0, column = 0, rows = kRows, columns = kColumns;
};

std::vector<float> CutOut(const Box2& box) {
  std::vector<float> out;
  out.reserve(static_cast<size_t>(box.rows * box.columns));
  for (int64_t i = 0; i < box.rows; ++i) {
    for (int64_t j = 0; j < box.columns; ++j) out.push_back(ValueAt(box.row + i, box.column + j));
  }
  return out;
}

// The boxes of the tensor ranks of a layout; of replicas under ZeRO, one of which ends within a
// row.
std::vector<Box2> TensorRanks(int64_t ranks) {
  std::vector<Box2> boxes;
  for (int64_t r = 0; r < ranks; ++r)
    boxes.push_back({.column = kColumns / ranks * r, .columns = kColumns / ranks});
  return boxes;
}
std::vector<Box2> Replicas() {
  return {{.rows = 211},
          {.row = 211, .rows = 1, .columns = 5},
          {.row = 211, .column = 5, .rows = 1, .columns = kColumns - 5},
          {.row = 212, .rows = kRows - 212}};
}

enum class Memory : uint8_t { kHost, kHostWithGaps, kDevice, kDeviceWithGaps };

class SavedPartsTest : public testing::TestWithParam<Memory> {
 protected:
  static constexpr int64_t kBlock = 100'000;
  bool device() const {
    return GetParam() == Memory::kDevice || GetParam() == Memory::kDeviceWithGaps;
  }
  bool gaps() const {
    return GetParam() == Memory::kHostWithGaps || GetParam() == Memory::kDeviceWithGaps;
  }

  // Saves the boxes of the matrix, and a vector, as one rank's slices.
  void Save(const std::string& directory, const std::vector<Box2>& boxes, bool by_columns = true) {
    SaveArgs args;
    args.directory = directory;
    args.manifest.step = args.manifest.epoch = 1;
    args.manifest.spec_json = "{}";
    args.manifest.block_bytes = kBlock;
    args.threads = 2;
    PiecesOfDevice reader;
    if (device()) args.reader = &reader;
    std::deque<std::vector<float>> memory;
    for (const Box2& box : boxes) {
      const std::vector<float> packed = CutOut(box);
      const auto count = std::ssize(packed);
      // As heads of 19 channels stored as 32.
      const base::Runs runs = gaps() ? base::Runs{.length = 19, .stride = 32} : base::Runs{};
      memory.emplace_back(static_cast<size_t>(runs.Span(count)), -1.0F);
      base::CopyToRuns(runs, count, 4, packed.data(), memory.back().data());
      args.slices.push_back({.key = "weights/m",
                             .dtype = kernels::DType::kF32,
                             .global_shape = {kRows, kColumns},
                             .offset = {box.row, box.column},
                             .shape = {box.rows, box.columns},
                             .data = memory.back().data(),
                             .places = runs,
                             .by_columns = by_columns});
    }
    memory.emplace_back(kVector, 7.0F);
    args.slices.push_back({.key = "weights/v",
                           .dtype = kernels::DType::kF32,
                           .global_shape = {kVector},
                           .offset = {0},
                           .shape = {kVector},
                           .data = memory.back().data(),
                           .places = {},
                           .by_columns = by_columns});
    const auto saved = SaveCheckpoint(args);
    ASSERT_TRUE(saved.ok()) << saved.status();
    int64_t in_memory = 0;
    for (const std::vector<float>& one : memory) in_memory += std::ssize(one) * 4;
    if (!device()) return;
    EXPECT_LE(reader.bytes(), in_memory) << "nothing is fetched twice";
  }

  // Every stored box and what lies in the file of it: columns cut here, blocks digested here.
  void ExpectStored(const std::string& directory, const std::vector<Box2>& want) {
    const std::string folder = base::JoinPath(directory, FolderName({1, 1}));
    const std::string file = base::ReadFile(folder + "/rank-00000.safetensors").value();
    uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, file.data(), sizeof header_bytes);
    const auto header = nlohmann::json::parse(file.substr(8, header_bytes));
    const auto rank = nlohmann::json::parse(base::ReadFile(folder + "/rank-00000.json").value());
    const auto& slices = rank.at("tensors").at("weights/m").at("slices");
    ASSERT_EQ(slices.size(), want.size());
    EXPECT_EQ(header.size(), want.size() + 1) << "and the vector";
    for (size_t i = 0; i < want.size(); ++i) {
      const Box2& box = want[i];
      const auto& slice = slices[i];
      EXPECT_EQ(slice.at("offset"), nlohmann::json({box.row, box.column}));
      EXPECT_EQ(slice.at("shape"), nlohmann::json({box.rows, box.columns}));
      const auto& entry = header.at(slice.at("tensor").get<std::string>());
      EXPECT_EQ(entry.at("shape"), slice.at("shape"));
      const std::vector<float> values = CutOut(box);
      const std::string_view bytes(reinterpret_cast<const char*>(values.data()),
                                   values.size() * sizeof(float));
      const size_t begin = 8 + header_bytes + entry.at("data_offsets")[0].get<size_t>();
      ASSERT_TRUE(std::string_view(file).substr(begin, bytes.size()) == bytes) << i;
      std::vector<std::string> digests;
      for (size_t at = 0; at < bytes.size(); at += kBlock)
        digests.push_back(base::Hash128Hex(bytes.substr(at, kBlock)));
      EXPECT_EQ(slice.at("xxh3_128"), nlohmann::json(digests)) << i;
    }
  }

  // Loads a box, and returns how many bytes were read for it.
  int64_t ExpectLoads(const std::string& directory, const Box2& box) {
    const Manifest manifest = ReadManifest(directory, {1, 1}).value();
    std::vector<float> out(static_cast<size_t>(box.rows * box.columns), -1);
    int64_t read = 0;
    LoadArgs load{.directory = directory, .id = {1, 1}, .manifest = &manifest};
    load.slices = {{.key = "weights/m",
                    .dtype = kernels::DType::kF32,
                    .global_shape = {kRows, kColumns},
                    .offset = {box.row, box.column},
                    .shape = {box.rows, box.columns},
                    .data = out.data()}};
    load.progress = [&](int64_t bytes) { read += bytes; };
    if (device()) {
      load.put = [](void* to, const void* from, int64_t bytes) {
        std::memcpy(to, from, static_cast<size_t>(bytes));
      };
    }
    const Status loaded = LoadTensors(load);
    EXPECT_TRUE(loaded.ok()) << loaded;
    EXPECT_TRUE(out == CutOut(box)) << box.row << " " << box.column;
    return read;
  }

  const TempDir dir_;
};

std::string NameOf(const testing::TestParamInfo<Memory>& instance) {
  static constexpr const char* kNames[] = {"host", "host_gaps", "device", "device_gaps"};
  return kNames[static_cast<size_t>(instance.param)];
}
INSTANTIATE_TEST_SUITE_P(Memories, SavedPartsTest,
                         testing::Values(Memory::kHost, Memory::kHostWithGaps, Memory::kDevice,
                                         Memory::kDeviceWithGaps),
                         NameOf);

TEST_P(SavedPartsTest, TensorRanksStoreTheSameParts) {
  std::vector<Box2> eighths;
  for (int64_t p = 0; p < 8; ++p) eighths.push_back({.column = p * kPart, .columns = kPart});
  for (const int64_t ranks : {1, 2, 4, 8}) {
    const std::string directory = dir_.File(std::to_string(ranks));
    Save(directory, TensorRanks(ranks));
    ExpectStored(directory, eighths);
  }
  // Thirds are no whole parts.
  Save(dir_.File("3"), TensorRanks(3));
  ExpectStored(dir_.File("3"), TensorRanks(3));
  // Nor is a matrix that is not cut by columns stored so.
  Save(dir_.File("rows"), TensorRanks(1), /*by_columns=*/false);
  ExpectStored(dir_.File("rows"), TensorRanks(1));
}

TEST_P(SavedPartsTest, ReplicasStoreRowsOfThem) {
  Save(dir_.path(), Replicas());
  std::vector<Box2> want;
  for (const Box2& box : Replicas()) {
    if (box.rows == 1) {
      want.push_back(box);
      continue;
    }
    for (int64_t p = 0; p < 8; ++p)
      want.push_back({.row = box.row, .column = p * kPart, .rows = box.rows, .columns = kPart});
  }
  ExpectStored(dir_.path(), want);
}

TEST_P(SavedPartsTest, AnyBoxLoadsFromThem) {
  std::mt19937 random(11);
  const auto pick = [&](int64_t n) {
    const auto a = static_cast<int64_t>(random() % static_cast<uint64_t>(n));
    return std::pair{a, 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(n - a))};
  };
  int saved = 0;
  for (const std::vector<Box2>& boxes : {TensorRanks(1), TensorRanks(2), Replicas()}) {
    const std::string directory = dir_.File(std::to_string(saved++));
    Save(directory, boxes);
    for (int round = 0; round < 3; ++round) {
      const auto [row, rows] = pick(kRows);
      const auto [column, columns] = pick(kColumns);
      ExpectLoads(directory, {.row = row, .column = column, .rows = rows, .columns = columns});
    }
    for (const int64_t ranks : {2, 8}) {
      int64_t read = 0;
      for (const Box2& box : TensorRanks(ranks)) read += ExpectLoads(directory, box);
      // Of a row that a replica's border cuts the part is read that belongs to each.
      EXPECT_LT(read, kRows * kColumns * 4 + ranks * kColumns * 4)
          << "each byte is read by the rank that wants it";
    }
  }
  Save(dir_.File("one"), TensorRanks(1), /*by_columns=*/false);
  EXPECT_EQ(ExpectLoads(dir_.File("one"), TensorRanks(2)[0]), kRows * kColumns * 4)
      << "stored as one, half is read as all";
}

// Checks and comparisons know slices, not how many there are of a tensor.
TEST_P(SavedPartsTest, OperatorsReadThem) {
  const std::string parted = dir_.File("parted"), one = dir_.File("one");
  Save(parted, TensorRanks(2));
  Save(one, TensorRanks(1), /*by_columns=*/false);
  const std::string folder = FolderName({1, 1});
  const auto diff = Diff({.a = PlaceOf(parted, {1, 1}), .b = PlaceOf(one, {1, 1}), .threads = 2});
  ASSERT_TRUE(diff.ok()) << diff.status();
  EXPECT_TRUE(diff->same_state && diff->tensors.empty());
  VerifyReport report = Verify({.folders = {base::JoinPath(parted, folder)}, .threads = 2});
  EXPECT_TRUE(report.damage.empty());
  EXPECT_EQ(report.num_slices, 8 + 1);
  EXPECT_EQ(report.bytes, (kRows * kColumns + kVector) * 4);
  // A wrong bit in the second row of the third part.
  const std::string path = base::JoinPath(parted, folder) + "/rank-00000.safetensors";
  std::string file = base::ReadFile(path).value();
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data(), sizeof header_bytes);
  file[8 + header_bytes + static_cast<size_t>((2 * kRows + 1) * kPart * 4 + 9)] ^= 4;
  ASSERT_TRUE(base::WriteFileAtomic(path, file).ok());
  report = Verify({.folders = {base::JoinPath(parted, folder)}, .threads = 2});
  ASSERT_EQ(report.damage.size(), 1U);
  EXPECT_EQ(report.damage[0].slice,
            fmt::format("weights/m[0:{}, {}:{}]", kRows, 2 * kPart, 3 * kPart));
}

}  // namespace
}  // namespace mt::checkpoint
