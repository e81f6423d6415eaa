// A task is a part of a file of bounded size: tasks open the file anew, so that as many files are
// open as there are threads, and a checkpoint of one file is read by all of them.
#include "worker/checkpoint/inspect/verify.h"

#include <algorithm>
#include <deque>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include <fmt/ranges.h>

#include "common/base/files.h"
#include "common/base/ids.h"
#include "common/base/mutex.h"
#include "worker/checkpoint/format/directory.h"
#include "worker/checkpoint/format/manifest.h"
#include "worker/checkpoint/format/parallel_tasks.h"
#include "worker/checkpoint/format/rank_manifest.h"
#include "worker/checkpoint/format/safetensors.h"

namespace mt::checkpoint {
namespace {

constexpr int64_t kPieceBytes = int64_t{4} << 20;
constexpr int64_t kTaskBytes = int64_t{256} << 20;

// A slice to be read.
struct Wanted {
  const std::string* key = nullptr;
  const TensorEntry* tensor = nullptr;
  const SliceEntry* slice = nullptr;
  int64_t bytes = 0;
  int64_t block_bytes = 0;
};

struct ReadTask {
  size_t folder = 0;  // of VerifyArgs::folders
  std::string file;
  std::vector<Wanted> slices;
};

// "weights/a[0:2, 0:3]"
std::string SliceText(const Wanted& wanted) {
  std::vector<std::string> ranges;
  for (size_t d = 0; d < wanted.slice->shape.size(); ++d) {
    const int64_t begin = wanted.slice->offset[d];
    ranges.push_back(fmt::format("{}:{}", begin, begin + wanted.slice->shape[d]));
  }
  return fmt::format("{}[{}]", *wanted.key, fmt::join(ranges, ", "));
}

std::vector<ReadTask> TasksOf(size_t folder, const Manifest& manifest) {
  std::map<std::string, std::vector<Wanted>> by_file;
  for (const auto& [key, tensor] : manifest.tensors) {
    for (const SliceEntry& slice : tensor.slices) {
      by_file[slice.file].push_back({.key = &key,
                                     .tensor = &tensor,
                                     .slice = &slice,
                                     .bytes = TensorBytes(tensor.dtype, slice.shape),
                                     .block_bytes = manifest.block_bytes});
    }
  }
  std::vector<ReadTask> tasks;
  for (auto& [file, slices] : by_file) {
    int64_t bytes = kTaskBytes;
    for (const Wanted& wanted : slices) {
      if (bytes >= kTaskBytes) {
        tasks.push_back({.folder = folder, .file = file, .slices = {}});
        bytes = 0;
      }
      tasks.back().slices.push_back(wanted);
      bytes += wanted.bytes;
    }
  }
  return tasks;
}

// What is wrong with a slice whose blocks have these digests; empty: nothing.
std::string Mismatch(const BlockDigests& are, const BlockDigests& said) {
  const auto [is, other] = std::ranges::mismatch(are, said);
  if (is == are.end()) return "";
  const std::string of_block =
      said.size() == 1 ? "" : fmt::format(" of block {} of {}", is - are.begin(), said.size());
  return fmt::format("damaged: its digest{} is {}, the manifest says {}", of_block,
                     base::HexOf(*is), base::HexOf(*other));
}

// The manifest, unless the folder's name says that it is another checkpoint's.
StatusOr<Manifest> OfItsFolder(const std::string& folder, Manifest manifest) {
  const auto id = ParseFolderName(std::filesystem::path(folder).filename().string());
  if (!id || (manifest.step == id->step && manifest.epoch == id->epoch)) return manifest;
  return base::DataLoss("of step {}, epoch {}: another checkpoint's", manifest.step,
                        manifest.epoch);
}

class Verification {
 public:
  explicit Verification(const VerifyArgs& args) : args_(args) {}

  VerifyReport Run() {
    std::vector<ReadTask> tasks;
    for (size_t i = 0; i < args_.folders.size(); ++i) {
      const Manifest* manifest = ReadManifestOf(i);
      if (manifest == nullptr) continue;
      ++report_.num_checkpoints;
      for (ReadTask& task : TasksOf(i, *manifest)) {
        for (const Wanted& wanted : task.slices) total_bytes_ += wanted.bytes;
        tasks.push_back(std::move(task));
      }
    }
    damage_.resize(tasks.size());
    RunTasks(static_cast<int64_t>(tasks.size()), args_.threads, [&](int64_t i) {
      Read(tasks[static_cast<size_t>(i)], &damage_[static_cast<size_t>(i)]);
    });
    Collect();
    return std::move(report_);
  }

 private:
  void Note(const std::string& folder, const std::string& file, const std::string& what) {
    report_.damage.push_back({.folder = folder, .file = file, .slice = "", .what = what});
  }

  // With the slices of all ranks whose manifests can be read. nullptr: it cannot be read itself.
  // What cannot is noted.
  const Manifest* ReadManifestOf(size_t i) {
    const std::string& folder = args_.folders[i];
    const auto text = base::ReadFile(base::JoinPath(folder, kManifestName));
    auto manifest = text.ok() ? ParseManifest(*text) : text.status();
    if (manifest.ok()) manifest = OfItsFolder(folder, *std::move(manifest));
    if (!manifest.ok()) {
      Note(folder, std::string(kManifestName), base::Message(manifest.status()));
      return nullptr;
    }
    if (!manifest->ranks.empty()) AddRanks(folder, &*manifest);
    return &manifests_.emplace_back(*std::move(manifest));
  }

  // Joins the slices of the ranks.
  void AddRanks(const std::string& folder, Manifest* manifest) {
    NoteWhatIsNotNamed(folder, *manifest);
    const base::FileOpener open;
    const RankManifests manifests(folder, *manifest, open);
    std::vector<StatusOr<TensorTable>> of_ranks(manifest->ranks.size(), TensorTable());
    RunTasks(std::ssize(of_ranks), args_.threads, [&](int64_t i) {
      const auto at = static_cast<size_t>(i);
      of_ranks[at] = manifests.Read(manifest->ranks[at]);
    });
    bool all = true;
    for (size_t i = 0; i < of_ranks.size(); ++i) {
      const RankEntry& rank = manifest->ranks[i];
      const StatusOr<TensorTable>& tensors = of_ranks[i];
      if (!tensors.ok()) {
        all = false;
        const bool gone = !base::Exists(base::JoinPath(folder, rank.manifest));
        Note(folder, rank.manifest, gone ? "missing" : base::Message(tensors.status()));
        continue;
      }
      for (const auto& [key, tensor] : *tensors) {
        std::vector<SliceEntry>& slices = manifest->tensors.at(key).slices;
        slices.insert(slices.end(), tensor.slices.begin(), tensor.slices.end());
      }
    }
    // What is missing would be told as a gap in each of its tensors.
    if (!all) return;
    const Status covered = CheckCoverage(*manifest);
    if (!covered.ok()) Note(folder, std::string(kManifestName), base::Message(covered));
  }

  // Files with a rank's name that are no part of the checkpoint.
  void NoteWhatIsNotNamed(const std::string& folder, const Manifest& manifest) {
    const std::set<std::string> named = FilesOf(manifest);
    std::set<std::string> others;
    std::error_code error;
    std::filesystem::directory_iterator it(folder, error);
    for (; !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
      std::string name = it->path().filename().string();
      if (name.starts_with("rank-") && !named.contains(name)) others.insert(std::move(name));
    }
    for (const std::string& name : others) Note(folder, name, "the manifest does not name it");
  }

  void Read(const ReadTask& task, std::vector<Damage>* damage) {
    const std::string& folder = args_.folders[task.folder];
    const std::string path = base::JoinPath(folder, task.file);
    const auto reader = SafetensorsReader::Open(path);
    if (!reader.ok()) {
      const bool gone = absl::IsNotFound(reader.status());
      damage->push_back({.folder = folder,
                         .file = task.file,
                         .slice = "",
                         .what = gone ? "missing" : base::Message(reader.status())});
      for (const Wanted& wanted : task.slices) Done(wanted.bytes, /*read=*/false);
      return;
    }
    std::vector<std::byte> piece;
    for (const Wanted& wanted : task.slices) {
      const std::string fault = ReadSlice(*reader, wanted, &piece);
      if (fault.empty()) continue;
      damage->push_back(
          {.folder = folder, .file = task.file, .slice = SliceText(wanted), .what = fault});
    }
  }

  // Returns what is wrong with the slice; empty: nothing.
  std::string ReadSlice(const SafetensorsReader& reader, const Wanted& wanted,
                        std::vector<std::byte>* piece) {
    const auto found = reader.entries().find(wanted.slice->tensor);
    if (found == reader.entries().end() || found->second.shape != wanted.slice->shape ||
        found->second.dtype != wanted.tensor->dtype) {
      Done(wanted.bytes, /*read=*/false);
      return "the file does not hold it as the manifest says";
    }
    BlockHasher digest(wanted.block_bytes);
    for (int64_t at = 0; at < wanted.bytes; at += kPieceBytes) {
      piece->resize(static_cast<size_t>(std::min(kPieceBytes, wanted.bytes - at)));
      const Status read = reader.ReadPart(found->second, at, *piece);
      if (!read.ok()) {
        Done(wanted.bytes - at, /*read=*/false);
        return base::Message(read);
      }
      digest.Add({reinterpret_cast<const char*>(piece->data()), piece->size()});
      Done(static_cast<int64_t>(piece->size()), /*read=*/true);
    }
    {
      const base::MutexLock lock(&mu_);
      ++read_slices_;
    }
    return Mismatch(digest.Take(), wanted.slice->digests);
  }

  void Done(int64_t bytes, bool read) {
    const base::MutexLock lock(&mu_);
    done_bytes_ += bytes;
    if (read) read_bytes_ += bytes;
    if (args_.progress) args_.progress(done_bytes_, total_bytes_);
  }

  // Joins the damage of all tasks; what is told of a file is told once, and a checkpoint that was
  // removed meanwhile is not damaged.
  void Collect() {
    {
      const base::MutexLock lock(&mu_);
      report_.num_slices = read_slices_;
      report_.bytes = read_bytes_;
    }
    std::vector<Damage> all = std::exchange(report_.damage, {});
    for (std::vector<Damage>& of_task : damage_)
      std::move(of_task.begin(), of_task.end(), std::back_inserter(all));
    std::set<std::string> files, removed;
    for (Damage& damage : all) {
      if (damage.file != kManifestName &&
          !base::Exists(base::JoinPath(damage.folder, kManifestName))) {
        removed.insert(damage.folder);
        continue;
      }
      if (damage.slice.empty() && !files.insert(base::JoinPath(damage.folder, damage.file)).second)
        continue;
      report_.damage.push_back(std::move(damage));
    }
    std::ranges::stable_sort(report_.damage, {}, &Damage::folder);
    report_.removed.assign(removed.begin(), removed.end());
  }

  const VerifyArgs& args_;
  std::deque<Manifest> manifests_;           // tasks point into them
  std::vector<std::vector<Damage>> damage_;  // of each task
  VerifyReport report_;
  int64_t total_bytes_ = 0;
  base::Mutex mu_;  // calls of progress are under it, too
  int64_t done_bytes_ GUARDED_BY(mu_) = 0;
  int64_t read_bytes_ GUARDED_BY(mu_) = 0;
  int64_t read_slices_ GUARDED_BY(mu_) = 0;
};

}  // namespace

VerifyReport Verify(const VerifyArgs& args) { return Verification(args).Run(); }

}  // namespace mt::checkpoint
