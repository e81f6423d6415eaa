// Digests of blocks against bytes that are cut and digested here; and loads of parts: what lies in
// a block with a wrong bit is refused, and a block that holds nothing wanted is not read.
#include <cstring>
#include <deque>
#include <fstream>
#include <numeric>
#include <random>
#include <set>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/base/files.h"
#include "tests/worker/checkpoint/saved_state.h"
#include "tests/worker/checkpoint/temp_dir.h"
#include "worker/checkpoint/format/whole_manifest.h"
#include "worker/checkpoint/loader.h"
#include "worker/checkpoint/writer.h"

namespace mt::checkpoint {
namespace {

using nlohmann::json;

// The digests of blocks as text, from the bytes alone.
std::vector<std::string> CutAndDigested(std::string_view bytes, size_t block_bytes) {
  std::vector<std::string> out;
  do {
    out.push_back(base::Hash128Hex(bytes.substr(0, block_bytes)));
    bytes.remove_prefix(std::min(block_bytes, bytes.size()));
  } while (!bytes.empty());
  return out;
}

std::vector<std::string> TextsOf(const BlockDigests& digests) {
  std::vector<std::string> out;
  for (const base::Hash128Value& digest : digests) out.push_back(base::HexOf(digest));
  return out;
}

std::string RandomBytes(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::string bytes(count, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

// The bytes of a tensor of a safetensors file, by the file's own header.
std::string StoredBytes(const std::string& path, const std::string& tensor) {
  const std::string file = base::ReadFile(path).value();
  uint64_t header = 0;
  std::memcpy(&header, file.data(), sizeof header);
  const json offsets = json::parse(file.substr(8, header)).at(tensor).at("data_offsets");
  const size_t begin = offsets.at(0), end = offsets.at(1);
  return file.substr(8 + header + begin, end - begin);
}

TEST(BlockTest, PiecesOfAnyLengthGiveTheDigestsOfBlocks) {
  constexpr size_t kBlock = 16;
  std::mt19937 random(3);
  for (const size_t bytes : {0, 1, 15, 16, 17, 31, 32, 33, 48, 1000}) {
    const std::string text = RandomBytes(bytes, 1);
    for (int round = 0; round < 20; ++round) {
      BlockHasher hasher(kBlock);
      for (size_t at = 0; at < text.size();) {
        const size_t piece = random() % 40;
        hasher.Add(std::string_view(text).substr(at, piece));
        at += piece;
      }
      const BlockDigests digests = hasher.Take();
      EXPECT_EQ(TextsOf(digests), CutAndDigested(text, kBlock)) << bytes;
      EXPECT_EQ(std::ssize(digests), NumBlocks(static_cast<int64_t>(bytes), kBlock)) << bytes;
      hasher.Add("next");
      EXPECT_EQ(TextsOf(hasher.Take()), CutAndDigested("next", kBlock)) << "starts over";
    }
  }
  BlockHasher whole(kWholeSliceBlock);
  whole.Add("any");
  whole.Add(" length");
  EXPECT_EQ(TextsOf(whole.Take()), CutAndDigested("any length", 100));
}

// Memory that is not the host's.
class OtherMemory final : public PieceReader {
 public:
  void Start(const void* data, int64_t bytes) override {
    pieces_.emplace_back(static_cast<const char*>(data), static_cast<size_t>(bytes));
  }
  const void* Read() override {
    read_ = std::move(pieces_.front());
    pieces_.pop_front();
    return read_.data();
  }

 private:
  std::deque<std::string> pieces_;
  std::string read_;
};

// Pieces of 8 MiB of memory end within blocks where there are gaps.
TEST(BlockTest, AFilesDigestsAreThoseOfItsBytes) {
  const TempDir dir;
  constexpr int64_t kElements = 9 << 18;  // 9 MiB: two blocks and a quarter
  const std::string memory = RandomBytes(kElements * 8, 2);
  const base::Runs gaps{.length = 1000, .stride = 1401, .skip = 77};
  const std::vector<TensorToWrite> tensors = {{"small", "F32", {5}, memory.data()},
                                              {"large", "F32", {kElements}, memory.data() + 20},
                                              {"none", "F32", {0, 3}, memory.data()},
                                              {"gaps", "F32", {kElements}, memory.data() + 4, gaps},
                                              {"exact", "F32", {kBlockBytes / 4}, memory.data()}};
  int file = 0;
  for (const bool on_device : {false, true}) {
    for (const int64_t block : {kBlockBytes, int64_t{1'000'000}}) {
      const std::string path = dir.File(std::to_string(++file));
      OtherMemory other;
      const auto digests = WriteSafetensors(path, tensors, nullptr, on_device ? &other : nullptr,
                                            /*threads=*/file, block);
      ASSERT_TRUE(digests.ok()) << digests.status();
      ASSERT_EQ(digests->size(), tensors.size());
      for (size_t i = 0; i < tensors.size(); ++i) {
        EXPECT_EQ(TextsOf((*digests)[i]),
                  CutAndDigested(StoredBytes(path, tensors[i].name), static_cast<size_t>(block)))
            << tensors[i].name;
      }
      EXPECT_EQ((*digests)[1].size(), block == kBlockBytes ? 3U : 10U);
      EXPECT_EQ((*digests)[4].size(), block == kBlockBytes ? 1U : 5U) << "no empty block";
    }
  }
}

// One tensor in three slices of several blocks and a rest.
class BlockLoadTest : public testing::Test {
 protected:
  static constexpr int64_t kRows = 40, kColumns = 9, kDepth = 2, kBlock = 200;

  BlockLoadTest() : values_(kRows * kColumns * kDepth) {
    std::iota(values_.begin(), values_.end(), 0.5);
    SaveArgs args;
    args.directory = dir_.path();
    args.manifest.step = args.manifest.epoch = 1;
    args.manifest.spec_json = "{}";
    args.manifest.block_bytes = kBlock;
    // Rows 0 to 24; of the others columns 0 to 3, and the rest of these.
    for (const auto& [offset, shape] : boxes_) {
      parts_.push_back(CutOut(offset, shape));
      args.slices.push_back({.key = "weights/w",
                             .dtype = kernels::DType::kF64,
                             .global_shape = {kRows, kColumns, kDepth},
                             .offset = offset,
                             .shape = shape,
                             .data = parts_.back().data()});
    }
    const auto saved = SaveCheckpoint(args);
    EXPECT_TRUE(saved.ok()) << saved.status();
    file_ = saved->path + "/rank-00000.safetensors";
    whole_ = base::ReadFile(file_).value();
    manifest_ = ReadManifest(dir_.path(), {1, 1}).value();
  }

  using Dims = std::vector<int64_t>;

  template <class Visit>
  static void ForEach(const Dims& offset, const Dims& shape, const Visit& visit) {
    for (int64_t i = 0; i < shape[0]; ++i) {
      for (int64_t j = 0; j < shape[1]; ++j) {
        for (int64_t k = 0; k < shape[2]; ++k) visit(offset[0] + i, offset[1] + j, offset[2] + k);
      }
    }
  }

  std::vector<double> CutOut(const Dims& offset, const Dims& shape) const {
    std::vector<double> out;
    ForEach(offset, shape, [&](int64_t i, int64_t j, int64_t k) {
      out.push_back(values_[static_cast<size_t>((i * kColumns + j) * kDepth + k)]);
    });
    return out;
  }

  // (slice, block) of each element of a box.
  std::set<std::pair<size_t, int64_t>> BlocksOf(const Dims& offset, const Dims& shape) const {
    std::set<std::pair<size_t, int64_t>> blocks;
    ForEach(offset, shape, [&](int64_t i, int64_t j, int64_t k) {
      for (size_t s = 0; s < boxes_.size(); ++s) {
        const auto& [at, size] = boxes_[s];
        const int64_t row = i - at[0], column = j - at[1];
        if (row < 0 || row >= size[0] || column < 0 || column >= size[1]) continue;
        blocks.emplace(s, ((row * size[1] + column) * size[2] + k) * 8 / kBlock);
      }
    });
    return blocks;
  }
  int64_t BytesOf(size_t slice) const {
    return std::ssize(parts_[slice]) * static_cast<int64_t>(sizeof(double));
  }
  int64_t BytesOf(const std::set<std::pair<size_t, int64_t>>& blocks) const {
    int64_t bytes = 0;
    for (const auto& [slice, block] : blocks)
      bytes += std::min(kBlock, BytesOf(slice) - block * kBlock);
    return bytes;
  }

  Status Load(const Dims& offset, const Dims& shape, std::vector<double>* out, int64_t* read) {
    out->assign(static_cast<size_t>(shape[0] * shape[1] * shape[2]), -1);
    *read = 0;
    LoadArgs args{.directory = dir_.path(), .id = {1, 1}, .manifest = &manifest_};
    args.progress = [read](int64_t bytes) { *read += bytes; };
    args.slices = {{.key = "weights/w",
                    .dtype = kernels::DType::kF64,
                    .global_shape = {kRows, kColumns, kDepth},
                    .offset = offset,
                    .shape = shape,
                    .data = out->data()}};
    return LoadTensors(args);
  }

  // Where a block of a slice begins in the file, by the file's header.
  size_t PlaceOf(size_t slice, int64_t block) const {
    uint64_t header = 0;
    std::memcpy(&header, whole_.data(), sizeof header);
    const json entries = json::parse(whole_.substr(8, header));
    const size_t begin = entries.at(fmt::format("weights/w#{}", slice)).at("data_offsets").at(0);
    return 8 + header + begin + static_cast<size_t>(block * kBlock);
  }

  const TempDir dir_;
  const std::vector<std::pair<Dims, Dims>> boxes_ = {{{0, 0, 0}, {25, kColumns, kDepth}},
                                                     {{25, 0, 0}, {15, 4, kDepth}},
                                                     {{25, 4, 0}, {15, 5, kDepth}}};
  std::vector<double> values_;
  std::vector<std::vector<double>> parts_;
  std::string file_, whole_;
  Manifest manifest_;
};

TEST_F(BlockLoadTest, EveryBoxReadsTheBlocksThatHoldSomeOfIt) {
  std::mt19937 random(11);
  int fewer = 0;
  for (int round = 0; round < 3000; ++round) {
    Dims offset, shape;
    for (const int64_t n : {kRows, kColumns, kDepth}) {
      const auto most = static_cast<uint64_t>(n);
      // Often the whole dimension.
      const bool all = random() % 3 == 0;
      offset.push_back(all ? 0 : static_cast<int64_t>(random() % most));
      const auto left = static_cast<uint64_t>(n - offset.back());
      shape.push_back(all ? n : static_cast<int64_t>(1 + random() % left));
    }
    std::vector<double> out;
    int64_t read = 0;
    const Status loaded = Load(offset, shape, &out, &read);
    ASSERT_TRUE(loaded.ok()) << loaded;
    ASSERT_EQ(out, CutOut(offset, shape));
    ASSERT_EQ(read, BytesOf(BlocksOf(offset, shape)));
    fewer += read < BytesOf(0) + BytesOf(1) + BytesOf(2) ? 1 : 0;
  }
  EXPECT_GT(fewer, 1000);
}

TEST_F(BlockLoadTest, AWrongBitStopsThoseWhoNeedItsBlockAndNobodyElse) {
  const std::vector<std::pair<Dims, Dims>> asked = {{{0, 0, 0}, {kRows, kColumns, kDepth}},
                                                    {{0, 0, 0}, {25, kColumns, kDepth}},
                                                    {{3, 0, 0}, {2, kColumns, kDepth}},
                                                    {{24, 8, 1}, {1, 1, 1}},
                                                    {{0, 0, 0}, {1, 1, 1}},
                                                    {{20, 3, 0}, {10, 2, kDepth}},
                                                    {{25, 4, 0}, {15, 5, kDepth}},
                                                    {{0, 8, 1}, {kRows, 1, 1}}};
  int passed = 0, failed = 0;
  for (size_t slice = 0; slice < boxes_.size(); ++slice) {
    for (int64_t block = 0; block * kBlock < BytesOf(slice); ++block) {
      // A bit of its first byte, of its last one, of one in between.
      const int64_t bytes = std::min(kBlock, BytesOf(slice) - block * kBlock);
      for (const int64_t at : {int64_t{0}, bytes / 2, bytes - 1}) {
        std::string damaged = whole_;
        char& byte = damaged[PlaceOf(slice, block) + static_cast<size_t>(at)];
        byte = static_cast<char>(byte ^ (1 << (at % 8)));
        std::ofstream(file_, std::ios::binary | std::ios::trunc) << damaged;
        for (const auto& [offset, shape] : asked) {
          std::vector<double> out;
          int64_t read = 0;
          const Status loaded = Load(offset, shape, &out, &read);
          if (!BlocksOf(offset, shape).contains({slice, block})) {
            ASSERT_TRUE(loaded.ok()) << slice << " " << block << ": " << loaded;
            ASSERT_EQ(out, CutOut(offset, shape));
            ++passed;
            continue;
          }
          ++failed;
          const std::string said = base::Message(loaded);
          ASSERT_TRUE(absl::IsDataLoss(loaded)) << slice << " " << block << ": " << loaded;
          ASSERT_NE(said.find(file_), std::string::npos) << said;
          ASSERT_NE(said.find(fmt::format("weights/w#{} ", slice)), std::string::npos) << said;
          ASSERT_NE(said.find(fmt::format("block {},", block)), std::string::npos) << said;
        }
      }
    }
  }
  EXPECT_GT(passed, 100);
  EXPECT_GT(failed, 100);
}

// The ranks' manifests against the bytes of the files, whatever the layout and the block.
TEST(BlockTest, ManifestsHaveTheDigestsOfTheirFiles) {
  for (const Cut cut : {Cut::kWhole, Cut::kRows, Cut::kColumns, Cut::kBuckets}) {
    for (const int64_t block : {int64_t{8}, int64_t{50}, int64_t{64}, kBlockBytes}) {
      const TempDir dir;
      SavedState state = MakeState();
      state.manifest.block_bytes = block;
      const std::string folder = SaveState(dir.path(), state, cut);
      const json root = json::parse(base::ReadFile(folder + "/manifest.json").value());
      EXPECT_EQ(root.at("version"), 2);
      EXPECT_EQ(root.at("block_bytes"), block);
      int slices = 0;
      for (const json& rank : root.at("ranks")) {
        const std::string text =
            base::ReadFile(folder + "/" + rank.at("manifest").get<std::string>()).value();
        EXPECT_EQ(rank.at("xxh3_128"), base::Hash128Hex(text));
        EXPECT_EQ(rank.at("bytes"), text.size());
        const json content = json::parse(text);
        for (const auto& [key, tensor] : content.at("tensors").items()) {
          for (const json& slice : tensor.at("slices")) {
            const std::string bytes =
                StoredBytes(folder + "/" + rank.at("file").get<std::string>(), slice.at("tensor"));
            EXPECT_EQ(slice.at("xxh3_128"), json(CutAndDigested(bytes, static_cast<size_t>(block))))
                << key;
            ++slices;
          }
        }
      }
      EXPECT_GE(slices, 4);
    }
  }
}

}  // namespace
}  // namespace mt::checkpoint
