// Manifests of a thousand ranks that share 10^12 parameters and two moments of them, without the
// tensors: written, collected by rank 0, read back whole and by one rank. MT_LONG_TESTS=1
// (scripts/test.sh --full): all of it; else a tenth. Prints how long it took; what is asserted is
// that nothing is lost and how much memory it takes.
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <numeric>
#include <set>

#include <gtest/gtest.h>

#include "common/base/files.h"
#include "tests/worker/checkpoint/temp_dir.h"
#include "worker/checkpoint/collect_ranks.h"
#include "worker/checkpoint/format/column_parts.h"
#include "worker/checkpoint/format/directory.h"
#include "worker/checkpoint/format/parallel_tasks.h"
#include "worker/checkpoint/format/rank_manifest.h"
#include "worker/checkpoint/format/whole_manifest.h"

namespace mt::checkpoint {
namespace {

// The layout: 2 threads stand for all ranks.
struct Scale {
  int stages, tensor, data;
  int64_t layers;  // of a stage
  int ranks() const { return stages * tensor * data; }
};
constexpr Scale kFull{.stages = 25, .tensor = 8, .data = 5, .layers = 128};
constexpr Scale kTenth{.stages = 5, .tensor = 4, .data = 5, .layers = 64};
constexpr int kThreads = 2;
constexpr int64_t kHidden = 5120;  // of GPT-3 13B

// A weight of a layer and its part on a tensor rank: cut along `cut`, or whole on the first (-1).
struct Weight {
  const char* name;
  std::vector<int64_t> shape;
  int cut;
};
const std::vector<Weight>& Matrices() {
  static const std::vector<Weight> all = {{"attn.qkv.weight", {3 * kHidden, kHidden}, 0},
                                          {"attn.proj.weight", {kHidden, kHidden}, 1},
                                          {"ffn.up.weight", {4 * kHidden, kHidden}, 0},
                                          {"ffn.down.weight", {kHidden, 4 * kHidden}, 1}};
  return all;
}
const std::vector<Weight>& Vectors() {
  static const std::vector<Weight> all = {
      {"norm1.weight", {kHidden}, -1},     {"norm1.bias", {kHidden}, -1},
      {"attn.qkv.bias", {3 * kHidden}, 0}, {"attn.proj.bias", {kHidden}, -1},
      {"norm2.weight", {kHidden}, -1},     {"norm2.bias", {kHidden}, -1},
      {"ffn.up.bias", {4 * kHidden}, 0},   {"ffn.down.bias", {kHidden}, -1}};
  return all;
}

// What one rank writes.
class RankShare {
 public:
  RankShare(const Scale& scale, int rank)
      : scale_(scale),
        rank_(rank),
        data_(rank % scale.data),
        tensor_(rank / scale.data % scale.tensor),
        stage_(rank / scale.data / scale.tensor) {
    for (int64_t i = 0; i < scale.layers; ++i) {
      const std::string prefix = fmt::format("layers.{}.", stage_ * scale.layers + i);
      // A bucket each: the matrices of a layer, its vectors.
      AddBucket(prefix, Matrices());
      AddBucket(prefix, Vectors());
    }
  }

  const TensorTable& tensors() const { return tensors_; }
  int64_t num_slices() const { return num_slices_; }
  int64_t num_digests() const { return num_digests_; }

 private:
  using Dims = std::vector<int64_t>;

  void AddBucket(const std::string& prefix, const std::vector<Weight>& weights) {
    std::vector<std::pair<const Weight*, std::pair<Dims, Dims>>> parts;
    int64_t all = 0;
    for (const Weight& weight : weights) {
      Dims offset(weight.shape.size(), 0), shape = weight.shape;
      if (weight.cut < 0 && tensor_ > 0) continue;
      if (weight.cut >= 0) {
        const auto d = static_cast<size_t>(weight.cut);
        shape[d] /= scale_.tensor;
        offset[d] = tensor_ * shape[d];
      }
      parts.push_back({&weight, {offset, shape}});
      all += CountElements(shape);
    }
    const int64_t begin = Border(all, data_), end = Border(all, data_ + 1);
    int64_t at = 0;
    for (const auto& [weight, part] : parts) {
      const int64_t count = CountElements(part.second);
      const int64_t from = std::max(begin - at, int64_t{0}), to = std::min(end - at, count);
      if (from < to) AddRange(prefix + weight->name, *weight, part, from, to);
      at += count;
    }
  }

  // Where a replica's slice of a bucket begins: within rows.
  int64_t Border(int64_t all, int replica) const {
    constexpr int64_t kWithinRow = 777;
    if (replica == 0 || replica == scale_.data) return replica == 0 ? 0 : all;
    return std::min(all, all * replica / scale_.data + kWithinRow);
  }

  // The elements [from, to) of a part: the rest of a row, whole rows, the beginning of a row.
  void AddRange(const std::string& name, const Weight& weight, const std::pair<Dims, Dims>& part,
                int64_t from, int64_t to) {
    const auto& [offset, shape] = part;
    if (shape.size() == 1) return Add(name, weight, {offset[0] + from}, {to - from});
    const int64_t columns = shape[1];
    for (int64_t at = from; at < to;) {
      const int64_t row = at / columns, column = at % columns;
      const bool whole = column == 0 && to - at >= columns;
      const int64_t rows = whole ? (to - at) / columns : 1;
      const int64_t run = whole ? columns : std::min(columns - column, to - at);
      Add(name, weight, {offset[0] + row, offset[1] + column}, {rows, run});
      at += rows * run;
    }
  }

  // As the writer stores it: in parts where tensor ranks cut columns.
  void Add(const std::string& name, const Weight& weight, const Dims& offset, Dims shape) {
    const int64_t parts = weight.cut == 1 ? NumColumnParts(weight.shape, offset, shape, 4) : 1;
    if (parts > 1) shape[1] /= parts;
    for (int64_t i = 0; i < parts; ++i) {
      Dims at = offset;
      if (parts > 1) at[1] += i * shape[1];
      AddStored(name, weight, at, shape);
    }
  }

  void AddStored(const std::string& name, const Weight& weight, const Dims& offset,
                 const Dims& shape) {
    for (const char* state : {"weights/", "exp_avg/", "exp_avg_sq/"}) {
      SliceEntry slice{.file = "",
                       .tensor = fmt::format("{}{}#{}", state, name, num_slices_),
                       .offset = offset,
                       .shape = shape,
                       .digests = {}};
      const int64_t blocks = NumBlocks(4 * CountElements(shape), kBlockBytes);
      for (int64_t i = 0; i < blocks; ++i) {
        const auto number = static_cast<uint64_t>(num_digests_++);
        slice.digests.push_back({static_cast<uint64_t>(rank_) * 0x9e3779b97f4a7c15, ~number});
      }
      TensorEntry& tensor = tensors_[state + name];
      tensor.dtype = "F32";
      tensor.shape = weight.shape;
      tensor.slices.push_back(std::move(slice));
      ++num_slices_;
    }
  }

  const Scale& scale_;
  const int rank_, data_, tensor_, stage_;
  TensorTable tensors_;
  int64_t num_slices_ = 0, num_digests_ = 0;
};

int64_t PeakMemoryMiB() {
  std::ifstream status("/proc/self/status");
  std::string word;
  int64_t kib = 0;
  while (status >> word && word != "VmHWM:") {
  }
  status >> kib;
  return kib / 1024;
}

class Stopwatch {
 public:
  explicit Stopwatch(const char* what) : what_(what) {}
  ~Stopwatch() {
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start_;
    const double computed = static_cast<double>(std::clock() - clock_) / CLOCKS_PER_SEC;
    fmt::print("{}: {:.1f} s, {:.1f} s of processors, {} MiB at most so far\n", what_, took.count(),
               computed, PeakMemoryMiB());
  }

 private:
  const char* what_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  const std::clock_t clock_ = std::clock();  // of all threads
};

TEST(ScaleTest, AThousandRanksShareATrillionParameters) {
  const bool all = std::getenv("MT_LONG_TESTS") != nullptr;
  const Scale scale = all ? kFull : kTenth;
  const TempDir dir;
  const CheckpointId id{1, 1};
  const std::string folder = dir.File(FolderName(id));
  ASSERT_TRUE(base::MakeDirs(folder).ok());
  std::vector<std::string> records(static_cast<size_t>(scale.ranks()));
  std::vector<int64_t> slices(records.size()), digests(records.size()), bytes(records.size());
  {
    // What ranks do side by side, each on its own host; there it syncs, too.
    const Stopwatch watch("ranks' manifests written");
    RunTasks(scale.ranks(), kThreads, [&](int64_t i) {
      const auto at = static_cast<size_t>(i);
      const RankShare share(scale, static_cast<int>(i));
      const std::string text = RankManifestText(share.tensors());
      std::ofstream(base::JoinPath(folder, RankManifestName(static_cast<int>(i)))) << text;
      records[at] = ToText({.bytes = std::ssize(text), .digest = base::Hash128Of(text)});
      slices[at] = share.num_slices();
      digests[at] = share.num_digests();
      bytes[at] = std::ssize(text);
    });
  }
  const auto sum = [](const std::vector<int64_t>& of) {
    return std::accumulate(of.begin(), of.end(), int64_t{0});
  };
  fmt::print("{} ranks, {} slices, {} digests, {} MiB of text\n", scale.ranks(), sum(slices),
             sum(digests), sum(bytes) >> 20);
  Manifest manifest{.step = 1, .epoch = 1, .world_size = scale.ranks(), .spec_json = "{}"};
  {
    const Stopwatch watch("rank 0 has collected them and written the root");
    const Status collected = CollectRanks(folder, records, &manifest);
    ASSERT_TRUE(collected.ok()) << collected;
    const std::string text = ToJson(manifest);
    ASSERT_TRUE(base::WriteFileAtomic(base::JoinPath(folder, kManifestName), text).ok());
    fmt::print("the root has {} KiB\n", text.size() >> 10);
  }
  const int64_t layers = scale.stages * scale.layers;
  EXPECT_EQ(std::ssize(manifest.tensors), 3 * 12 * layers);
  EXPECT_EQ(std::ssize(manifest.ranks), scale.ranks());
  manifest = Manifest();
  {
    const Stopwatch watch("a rank has found the slices of a layer");
    const Manifest root = ReadManifest(dir.path(), id).value();
    std::set<std::string> keys;
    for (const auto& [key, tensor] : root.tensors) {
      if (key.find("/layers.7.") != std::string::npos) keys.insert(key);
    }
    ASSERT_EQ(keys.size(), 36U);
    const auto found = ReadSlices({.folder = folder, .manifest = &root, .keys = &keys});
    ASSERT_TRUE(found.ok()) << found.status();
    for (const auto& [key, tensor] : *found) EXPECT_TRUE(CheckWhole(key, tensor).ok()) << key;
    // Nobody reads what is of other stages.
    int64_t ranks = 0;
    const auto ordinal = std::distance(root.tensors.begin(), root.tensors.find(*keys.begin()));
    for (const RankEntry& rank : root.ranks) {
      for (const auto& [first, last] : rank.tensors)
        ranks += first <= ordinal && ordinal <= last ? 1 : 0;
    }
    EXPECT_LE(ranks, scale.tensor * scale.data);
  }
  {
    const Stopwatch watch("everything is read and checked");
    const auto whole = ReadWholeManifest(dir.path(), id, kThreads);
    ASSERT_TRUE(whole.ok()) << whole.status();
    int64_t parameters = 0, found = 0, blocks = 0;
    for (const auto& [key, tensor] : whole->tensors) {
      if (key.starts_with("weights/")) parameters += CountElements(tensor.shape);
      found += std::ssize(tensor.slices);
      for (const SliceEntry& slice : tensor.slices) blocks += std::ssize(slice.digests);
    }
    EXPECT_GT(parameters, (all ? 10 : 1) * int64_t{100'000'000'000});
    EXPECT_EQ(found, sum(slices));
    EXPECT_EQ(blocks, sum(digests));
  }
  EXPECT_LT(PeakMemoryMiB(), all ? 1024 : 192);
}

}  // namespace
}  // namespace mt::checkpoint
