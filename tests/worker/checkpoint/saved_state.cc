// Ranks are threads of this program.
#include "tests/worker/checkpoint/saved_state.h"

#include <cstring>
#include <fstream>
#include <numeric>
#include <thread>

#include "common/base/check.h"
#include "common/base/files.h"
#include "tests/worker/comm/group_harness.h"
#include "worker/checkpoint/format/directory.h"
#include "worker/checkpoint/writer.h"
#include "worker/comm/threads/hub.h"

namespace mt::checkpoint {
namespace {

struct StateBox {
  std::vector<int64_t> offset, shape;
};

int64_t CountOf(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

// The boxes of a rank of a tensor of `shape`, by the cut. A dimension is cut after a third.
std::vector<StateBox> BoxesOf(Cut cut, int rank, const std::vector<int64_t>& shape) {
  const StateBox whole{.offset = std::vector<int64_t>(shape.size(), 0), .shape = shape};
  const bool first = rank == 0;
  if (cut == Cut::kWhole || (cut == Cut::kColumns && shape.size() == 1))
    return first ? std::vector{whole} : std::vector<StateBox>();
  if (cut == Cut::kBuckets && shape.size() == 2) {
    // The first rank has a row and two elements of the next.
    const int64_t rows = shape[0], columns = shape[1];
    if (first) return {{{0, 0}, {1, columns}}, {{1, 0}, {1, 2}}};
    return {{{1, 2}, {1, columns - 2}}, {{2, 0}, {rows - 2, columns}}};
  }
  const size_t dim = cut == Cut::kColumns ? shape.size() - 1 : 0;
  const int64_t at = shape[dim] / 3;
  StateBox box = whole;
  box.offset[dim] = first ? 0 : at;
  box.shape[dim] = first ? at : shape[dim] - at;
  return {box};
}

// The box's elements as bytes of the tensor's type.
std::vector<std::byte> BytesOf(const StateTensor& tensor, const StateBox& box) {
  std::vector<std::byte> out;
  const auto put = [&](auto value) {
    const auto* from = reinterpret_cast<const std::byte*>(&value);
    out.insert(out.end(), from, from + sizeof value);
  };
  for (int64_t i = 0; i < CountOf(tensor.shape); ++i) {
    bool inside = true;
    int64_t rest = i;
    for (size_t d = tensor.shape.size(); d-- > 0; rest /= tensor.shape[d]) {
      const int64_t at = rest % tensor.shape[d];
      inside = inside && at >= box.offset[d] && at < box.offset[d] + box.shape[d];
    }
    if (!inside) continue;
    const double value = tensor.values[static_cast<size_t>(i)];
    tensor.dtype == kernels::DType::kF32 ? put(static_cast<float>(value)) : put(value);
  }
  return out;
}

Status SaveRank(const std::string& directory, const SavedState& state, Cut cut,
                comm::ProcessGroup* group) {
  comm::InlineStream stream;
  SaveArgs args;
  args.directory = directory;
  args.manifest = state.manifest;
  args.manifest.step = state.step;
  args.manifest.epoch = state.epoch;
  args.group = group;
  args.stream = &stream;
  std::vector<std::vector<std::byte>> bytes;
  for (const auto& [key, tensor] : state.tensors) {
    for (const StateBox& box : BoxesOf(cut, group->rank(), tensor.shape)) {
      bytes.push_back(BytesOf(tensor, box));
      args.slices.push_back({.key = key,
                             .dtype = tensor.dtype,
                             .global_shape = tensor.shape,
                             .offset = box.offset,
                             .shape = box.shape});
    }
  }
  for (size_t i = 0; i < bytes.size(); ++i) args.slices[i].data = bytes[i].data();
  return SaveCheckpoint(args).status();
}

}  // namespace

SavedState MakeState(int64_t step, int64_t epoch) {
  SavedState state{.step = step, .epoch = epoch};
  state.manifest.job_uid = "9b1fc90f-65dc-460e-a2bd-c1e224c1f98f";
  state.manifest.job_name = "tiny";
  state.manifest.spec_json =
      R"({"model":{"seq_length":16},"parallel":{"tensor":1,"pipeline":1,"data":1},)"
      R"("training":{"precision":"bf16"}})";
  state.manifest.integers = {{"consumed_samples", 8 * step}, {"adam_step", step}};
  state.manifest.reals = {{"lr", 0.001}, {"loss_scale", 65536}};
  state.manifest.facts = {{"threads_per_rank", "1"}};
  const auto add = [&](const std::string& key, kernels::DType dtype,
                       const std::vector<int64_t>& shape) {
    StateTensor tensor{.dtype = dtype, .shape = shape, .values = {}};
    tensor.values.resize(static_cast<size_t>(CountOf(shape)));
    std::iota(tensor.values.begin(), tensor.values.end(), 0.5 * static_cast<double>(step));
    state.tensors[key] = tensor;
  };
  add("weights/a", kernels::DType::kF64, {6, 5});
  add("weights/cube", kernels::DType::kF64, {7, 4, 3});
  add("weights/norm", kernels::DType::kF32, {6});
  add("exp_avg/a", kernels::DType::kF32, {6, 5});
  return state;
}

std::string SaveState(const std::string& directory, const SavedState& state, Cut cut) {
  const int ranks = cut == Cut::kWhole ? 1 : 2;
  comm::ThreadsHub hub(comm::CommConfig{});
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      std::vector<int> members(static_cast<size_t>(ranks));
      std::iota(members.begin(), members.end(), 0);
      const auto group =
          hub.Create({.name = "world", .members = members, .my_index = rank}).value();
      const Status saved = SaveRank(directory, state, cut, group.get());
      CHECK(saved.ok()) << saved;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return base::JoinPath(directory, FolderName({state.step, state.epoch}));
}

CheckpointPlace PlaceOf(const std::string& directory, const CheckpointId& id) {
  return {.directory = directory, .id = id, .folder = base::JoinPath(directory, FolderName(id))};
}

void FlipBit(const std::string& path, int64_t offset) {
  std::string bytes = base::ReadFile(path).value();
  const auto at = static_cast<size_t>(offset < 0 ? std::ssize(bytes) + offset : offset);
  bytes.at(at) = static_cast<char>(bytes.at(at) ^ 1);
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

}  // namespace mt::checkpoint
