// Where slices lie is read once for all that is wanted; then threads take a requested slice at a
// time.
#include "worker/checkpoint/loader.h"

#include <algorithm>
#include <atomic>
#include <cctype>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "common/base/files.h"
#include "common/base/mutex.h"
#include "worker/checkpoint/box_runs.h"
#include "worker/checkpoint/format/coverage.h"
#include "worker/checkpoint/format/parallel_tasks.h"
#include "worker/checkpoint/format/whole_manifest.h"
#include "worker/checkpoint/stored_slice.h"

namespace mt::checkpoint {
namespace {

using nlohmann::json;
using Dims = std::vector<int64_t>;

// The types in which state is stored.
bool IsMasterType(std::string_view name) { return name == "F32" || name == "F64"; }
kernels::DType MasterType(std::string_view name) {
  return name == "F64" ? kernels::DType::kF64 : kernels::DType::kF32;
}

std::string ShapeText(const Dims& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::string FolderOf(const LoadArgs& args) {
  return base::JoinPath(args.directory, FolderName(args.id));
}

Status CheckAsked(const LoadArgs& args, const SliceToLoad& wanted) {
  const auto it = args.manifest->tensors.find(wanted.key);
  if (it == args.manifest->tensors.end()) {
    return base::NotFound("checkpoint {} has no tensor {}: it was saved by another model",
                          FolderOf(args), wanted.key);
  }
  const TensorEntry& tensor = it->second;
  std::string type(kernels::Name(wanted.dtype));
  for (char& c : type) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  if (tensor.shape != wanted.global_shape || !IsMasterType(tensor.dtype)) {
    return base::FailedPrecondition("checkpoint {}: {} is {} {}, the job's is {} {}",
                                    FolderOf(args), wanted.key, tensor.dtype,
                                    ShapeText(tensor.shape), type, ShapeText(wanted.global_shape));
  }
  return OkStatus();
}

// Whether the slices that were found hold each wanted element once.
Status CheckFound(const LoadArgs& args, const SliceToLoad& wanted, const TensorEntry& tensor) {
  const Box box{.offset = wanted.offset, .shape = wanted.shape};
  BoxList found(wanted.shape.size());
  for (const SliceEntry& stored : tensor.slices) {
    std::optional<Box> common = Intersect({.offset = stored.offset, .shape = stored.shape}, box);
    if (!common) continue;
    for (size_t d = 0; d < wanted.offset.size(); ++d) common->offset[d] -= wanted.offset[d];
    found.Add(common->offset, common->shape);
  }
  const Status covered = CheckCoveredOnce(found, wanted.shape);
  if (covered.ok()) return OkStatus();
  return base::DataLoss(
      "checkpoint {}: of the part of {} from [{}] on, of shape {}, {}; use another checkpoint",
      FolderOf(args), wanted.key, fmt::join(wanted.offset, ", "), ShapeText(wanted.shape),
      base::Message(covered));
}

// The tensors that are asked for, with all their slices.
StatusOr<TensorTable> FindSlices(const LoadArgs& args) {
  std::set<std::string> keys;
  for (const SliceToLoad& wanted : args.slices) {
    RETURN_IF_ERROR(CheckAsked(args, wanted));
    keys.insert(wanted.key);
  }
  ASSIGN_OR_RETURN(TensorTable tensors, ReadSlices({.folder = FolderOf(args),
                                                    .manifest = args.manifest,
                                                    .keys = &keys,
                                                    .threads = args.threads,
                                                    .open = args.open}));
  for (const SliceToLoad& wanted : args.slices)
    RETURN_IF_ERROR(CheckFound(args, wanted, tensors.at(wanted.key)));
  return tensors;
}

// Reads the slices of one checkpoint and keeps its files open between tensors.
class Loading {
 public:
  // `calls` is locked while the caller's functions run; it outlives the object.
  Loading(const LoadArgs& args, base::Mutex* calls)
      : args_(args),
        calls_(calls),
        files_(FolderOf(args), args.manifest->block_bytes, args.open,
               [this](int64_t bytes) { Progress(bytes); }) {}

  // `tensor` with all its slices.
  Status Load(const SliceToLoad& wanted, const TensorEntry& tensor) {
    SliceToLoad image = wanted;
    image.dtype = MasterType(tensor.dtype);
    const bool converts = image.dtype != wanted.dtype;
    if (!args_.put && !converts && wanted.places.contiguous()) return LoadOnHost(tensor, wanted);
    image.places = {};
    int64_t count = 1;
    for (const int64_t dim : wanted.shape) count *= dim;
    image_.resize(static_cast<size_t>(count * kernels::SizeOf(image.dtype)));
    image.data = image_.data();
    RETURN_IF_ERROR(LoadOnHost(tensor, image));
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
    const Box box{.offset = wanted.offset, .shape = wanted.shape};
    for (const SliceEntry& stored : tensor.slices)
      RETURN_IF_ERROR(files_.Copy(tensor, stored, box, static_cast<std::byte*>(wanted.data)));
    return OkStatus();
  }

  void Progress(int64_t bytes) {
    if (!args_.progress) return;
    base::MutexLock lock(calls_);
    args_.progress(bytes);
  }

  const LoadArgs& args_;
  base::Mutex* const calls_;
  SliceFiles files_;
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

// The value of an object's key, whatever that holds (nothing, dots), or null.
json Member(const json& object, const std::string& key) {
  return object.is_object() && object.contains(key) ? object.at(key) : json();
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
      Compare(fmt::format("{}.{}", path, key), Member(saved, key), Member(now, key), out);
    }
    return;
  }
  if (saved == now) return;
  const auto text = [](const json& v) { return v.is_null() ? std::string("nothing") : v.dump(); };
  out->push_back(fmt::format("{}: checkpoint has {}, job has {}", path, text(saved), text(now)));
}

}  // namespace

Status LoadTensors(const LoadArgs& args) {
  ASSIGN_OR_RETURN(const TensorTable tensors, FindSlices(args));
  const auto threads = static_cast<size_t>(std::max(1, args.threads));
  base::Mutex calls;
  std::vector<Status> loaded(args.slices.size());
  std::atomic<bool> failed = false;
  std::atomic<size_t> next = 0;
  RunTasks(static_cast<int64_t>(threads), args.threads, [&](int64_t) {
    Loading loading(args, &calls);
    for (size_t i = next++; i < args.slices.size() && !failed; i = next++) {
      loaded[i] = loading.Load(args.slices[i], tensors.at(args.slices[i].key));
      if (!loaded[i].ok()) failed = true;
    }
  });
  for (const Status& status : loaded) RETURN_IF_ERROR(status);
  return OkStatus();
}

Status CheckSameRun(const Manifest& manifest, const std::string& current_json) {
  // Fields that must not change on resume; all others may.
  static constexpr std::string_view kFixed[] = {
      "model", "data.seed", "data.split", "data.mock", "data.tokenizer", "training.seed",
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
      "another checkpoint.directory, or begin another run on purpose with --restart",
      manifest.step, manifest.epoch, fmt::join(differences, "; "));
}

}  // namespace mt::checkpoint
