// A stored slice that equals a requested one is read directly into place; any other overlap is read
// whole into a buffer, verified and copied row by row.
#include "worker/checkpoint/loader.h"

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "common/base/files.h"
#include "common/base/ids.h"
#include "common/base/mutex.h"
#include "worker/checkpoint/format/parallel_tasks.h"
#include "worker/checkpoint/format/safetensors.h"

namespace mt::checkpoint {
namespace {

using nlohmann::json;
using Dims = std::vector<int64_t>;

// A box of the global tensor. Intersect returns the intersection of a stored and a requested slice,
// or nullopt if it is empty.
struct Box {
  Dims offset, shape;
};

std::optional<Box> Intersect(const SliceEntry& stored, const SliceToLoad& wanted) {
  Box box;
  for (size_t d = 0; d < wanted.shape.size(); ++d) {
    const int64_t begin = std::max(stored.offset[d], wanted.offset[d]);
    const int64_t end =
        std::min(stored.offset[d] + stored.shape[d], wanted.offset[d] + wanted.shape[d]);
    if (begin >= end) return std::nullopt;
    box.offset.push_back(begin);
    box.shape.push_back(end - begin);
  }
  return box;
}

// Index of the element `at` in a row-major box.
int64_t LinearIndex(const Dims& at, const Dims& box_offset, const Dims& box_shape) {
  int64_t index = 0;
  for (size_t d = 0; d < at.size(); ++d) index = index * box_shape[d] + (at[d] - box_offset[d]);
  return index;
}

// Copies `box` from the stored slice's bytes into the wanted slice's memory, row by row.
void CopyBox(const Box& box, const SliceEntry& stored, const std::byte* from,
             const SliceToLoad& wanted) {
  const auto element = static_cast<int64_t>(kernels::SizeOf(wanted.dtype));
  const size_t rank = box.shape.size();
  const int64_t run = rank == 0 ? 1 : box.shape[rank - 1];
  Dims at = box.offset;
  for (;;) {
    const int64_t source = LinearIndex(at, stored.offset, stored.shape) * element;
    const int64_t target = LinearIndex(at, wanted.offset, wanted.shape) * element;
    std::memcpy(static_cast<std::byte*>(wanted.data) + target, from + source,
                static_cast<size_t>(run * element));
    // Advance to the next row: an odometer over all dimensions but the last.
    size_t d = rank == 0 ? 0 : rank - 1;
    while (d > 0) {
      --d;
      if (++at[d] < box.offset[d] + box.shape[d]) break;
      at[d] = box.offset[d];
      if (d == 0) return;
    }
    if (rank <= 1) return;
  }
}

// The types in which state is stored.
bool IsMasterType(std::string_view name) { return name == "F32" || name == "F64"; }
kernels::DType MasterType(std::string_view name) {
  return name == "F64" ? kernels::DType::kF64 : kernels::DType::kF32;
}

std::string ShapeText(const Dims& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

// Reads the slices of one checkpoint and keeps its files open between tensors.
class Loading {
 public:
  // `calls` is locked while the caller's functions run; it outlives the object.
  Loading(const LoadArgs& args, base::Mutex* calls)
      : args_(args), calls_(calls), folder_(base::JoinPath(args.directory, FolderName(args.id))) {}

  Status Load(const SliceToLoad& wanted) {
    ASSIGN_OR_RETURN(const TensorEntry* tensor, Find(wanted));
    SliceToLoad image = wanted;
    image.dtype = MasterType(tensor->dtype);
    const bool converts = image.dtype != wanted.dtype;
    if (!args_.put && !converts && wanted.places.contiguous()) return LoadOnHost(*tensor, wanted);
    image.places = {};
    int64_t count = 1;
    for (const int64_t dim : wanted.shape) count *= dim;
    image_.resize(static_cast<size_t>(count * kernels::SizeOf(image.dtype)));
    image.data = image_.data();
    RETURN_IF_ERROR(LoadOnHost(*tensor, image));
    if (converts) Convert(count, wanted.dtype);
    return Place(wanted, count, converts ? converted_.data() : image_.data());
  }

 private:
  // Brings the contiguous elements at `from` to where they are wanted.
  Status Place(const SliceToLoad& wanted, int64_t count, const std::byte* from) {
    const int64_t element = kernels::SizeOf(wanted.dtype);
    if (!args_.put) {
      base::CopyToRuns(wanted.places, count, element, from, wanted.data);
    } else if (wanted.places.contiguous()) {
      Put(wanted.data, from, count * element);
    } else {
      spread_.assign(static_cast<size_t>(wanted.places.Span(count) * element), std::byte{0});
      base::CopyToRuns(wanted.places, count, element, from, spread_.data());
      Put(wanted.data, spread_.data(), static_cast<int64_t>(spread_.size()));
    }
    return OkStatus();
  }

  void Put(void* to, const std::byte* from, int64_t bytes) {
    base::MutexLock lock(calls_);
    args_.put(to, from, bytes);
  }

  // image_ to converted_: single to double, which is exact, or double to single, rounded.
  void Convert(int64_t count, kernels::DType to) {
    converted_.resize(static_cast<size_t>(count * kernels::SizeOf(to)));
    if (to == kernels::DType::kF64) {
      std::copy_n(reinterpret_cast<const float*>(image_.data()), count,
                  reinterpret_cast<double*>(converted_.data()));
    } else {
      std::transform(reinterpret_cast<const double*>(image_.data()),
                     reinterpret_cast<const double*>(image_.data()) + count,
                     reinterpret_cast<float*>(converted_.data()),
                     [](double value) { return static_cast<float>(value); });
    }
  }

  Status LoadOnHost(const TensorEntry& tensor, const SliceToLoad& wanted) {
    for (const SliceEntry& stored : tensor.slices) {
      const auto box = Intersect(stored, wanted);
      if (!box) continue;
      const bool direct = stored.offset == wanted.offset && stored.shape == wanted.shape;
      const auto bytes = static_cast<size_t>(TensorBytes(tensor.dtype, stored.shape));
      if (!direct) buffer_.resize(bytes);
      std::byte* into = direct ? static_cast<std::byte*>(wanted.data) : buffer_.data();
      RETURN_IF_ERROR(ReadChecked(tensor, stored, {into, bytes}));
      if (!direct) CopyBox(*box, stored, into, wanted);
      if (!args_.progress) continue;
      base::MutexLock lock(calls_);
      args_.progress(static_cast<int64_t>(bytes));
    }
    return OkStatus();
  }

  StatusOr<const TensorEntry*> Find(const SliceToLoad& wanted) const {
    const auto it = args_.manifest->tensors.find(wanted.key);
    if (it == args_.manifest->tensors.end()) {
      return base::NotFound("checkpoint {} has no tensor {}: it was saved by another model",
                            folder_, wanted.key);
    }
    const TensorEntry& tensor = it->second;
    std::string type(kernels::Name(wanted.dtype));
    for (char& c : type) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    if (tensor.shape != wanted.global_shape || !IsMasterType(tensor.dtype)) {
      return base::FailedPrecondition("checkpoint {}: {} is {} {}, the job's is {} {}", folder_,
                                      wanted.key, tensor.dtype, ShapeText(tensor.shape), type,
                                      ShapeText(wanted.global_shape));
    }
    return &tensor;
  }

  StatusOr<const SafetensorsReader*> Open(const std::string& file) {
    auto it = files_.find(file);
    if (it == files_.end()) {
      StatusOr<SafetensorsReader> reader =
          SafetensorsReader::Open(base::JoinPath(folder_, file), args_.open);
      if (absl::IsNotFound(reader.status())) {
        return base::DataLoss("{} is missing, and the manifest names it; use another checkpoint",
                              base::JoinPath(folder_, file));
      }
      RETURN_IF_ERROR(reader.status());
      it = files_.emplace(file, *std::move(reader)).first;
    }
    return &it->second;
  }

  Status ReadChecked(const TensorEntry& tensor, const SliceEntry& stored,
                     std::span<std::byte> out) {
    ASSIGN_OR_RETURN(const SafetensorsReader* reader, Open(stored.file));
    const auto entry = reader->entries().find(stored.tensor);
    if (entry == reader->entries().end() || entry->second.shape != stored.shape ||
        entry->second.dtype != tensor.dtype) {
      return base::DataLoss("{} does not hold {} as its manifest says; use another checkpoint",
                            reader->path(), stored.tensor);
    }
    RETURN_IF_ERROR(reader->Read(entry->second, out));
    const std::string digest =
        base::Hash128Hex({reinterpret_cast<const char*>(out.data()), out.size()});
    if (digest != stored.digest) {
      return base::DataLoss(
          "{}: {} is damaged (digest {}, manifest says {}); use another checkpoint", reader->path(),
          stored.tensor, digest, stored.digest);
    }
    return OkStatus();
  }

  const LoadArgs& args_;
  base::Mutex* const calls_;
  const std::string folder_;
  std::map<std::string, SafetensorsReader> files_;
  std::vector<std::byte> buffer_;     // a stored slice
  std::vector<std::byte> image_;      // a requested slice that is not read in place
  std::vector<std::byte> converted_;  // the same, of the type that is wanted
  std::vector<std::byte> spread_;     // the same, with gaps
};

// The value at a path such as "a.b.c", or null.
json At(const json& root, std::string_view path) {
  const json* node = &root;
  while (!path.empty()) {
    const size_t dot = std::min(path.find('.'), path.size());
    const auto it = node->is_object() ? node->find(std::string(path.substr(0, dot))) : node->end();
    if (!node->is_object() || it == node->end()) return nullptr;
    node = &*it;
    path.remove_prefix(std::min(dot + 1, path.size()));
  }
  return *node;
}

// Of the model: how far its tables are padded, which no checkpoint stores.
constexpr std::string_view kMayChange = "vocab_divisible_by";

// Appends a line for each leaf at which the two documents differ.
void Compare(const std::string& path, const json& saved, const json& now,
             std::vector<std::string>* out) {
  if (saved.is_object() || now.is_object()) {
    std::map<std::string, bool> keys;
    for (const json* side : {&saved, &now}) {
      if (!side->is_object()) continue;
      for (const auto& [key, value] : side->items()) keys[key] = true;
    }
    for (const auto& [key, unused] : keys) {
      if (path == "model" && key == kMayChange) continue;
      Compare(fmt::format("{}.{}", path, key), At(saved, key), At(now, key), out);
    }
    return;
  }
  if (saved == now) return;
  const auto text = [](const json& v) { return v.is_null() ? std::string("nothing") : v.dump(); };
  out->push_back(fmt::format("{}: checkpoint has {}, job has {}", path, text(saved), text(now)));
}

}  // namespace

Status LoadTensors(const LoadArgs& args) {
  const auto threads = static_cast<size_t>(std::max(1, args.threads));
  base::Mutex calls;
  std::vector<Status> loaded(args.slices.size());
  std::atomic<bool> failed = false;
  std::atomic<size_t> next = 0;
  RunTasks(static_cast<int64_t>(threads), args.threads, [&](int64_t) {
    Loading loading(args, &calls);
    for (size_t i = next++; i < args.slices.size() && !failed; i = next++) {
      loaded[i] = loading.Load(args.slices[i]);
      if (!loaded[i].ok()) failed = true;
    }
  });
  for (const Status& status : loaded) RETURN_IF_ERROR(status);
  return OkStatus();
}

Status CheckSameRun(const Manifest& manifest, const std::string& current_json) {
  // Fields that must not change on resume; all others may.
  static constexpr std::string_view kFixed[] = {
      "model",
      "data.seed",
      "data.split",
      "data.mock",
      "data.tokenizer",
      "training.train_iters",
      "training.train_samples",
      "training.train_tokens",
      "training.global_batch_size",
      "training.batch_ramp",
      "training.seed",
  };
  const json saved = json::parse(manifest.spec_json, nullptr, false);
  const json now = json::parse(current_json, nullptr, false);
  std::vector<std::string> differences;
  for (const std::string_view path : kFixed) {
    Compare(std::string(path), At(saved, path), At(now, path), &differences);
  }
  if (differences.empty()) return OkStatus();
  return base::FailedPrecondition(
      "this job cannot go on from checkpoint step {}, epoch {}: {}. Use the checkpoint's values, "
      "another checkpoint.directory, or checkpoint.fresh to start over",
      manifest.step, manifest.epoch, fmt::join(differences, "; "));
}

}  // namespace mt::checkpoint
