// dlopen, dlsym into the table, and one question for the version.
#include "worker/comm/nccl/nccl_library.h"

#include <dlfcn.h>
#include <filesystem>
#include <glob.h>
#include <iterator>
#include <link.h>
#include <memory>
#include <mutex>
#include <utility>

#include <absl/strings/str_join.h>
#include <fmt/format.h>

namespace mt::comm {
namespace {

constexpr char kName[] = "libnccl.so.2";

std::string VersionText(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

void AppendMatches(const std::string& pattern, std::vector<std::string>* paths) {
  glob_t found{};
  if (::glob(pattern.c_str(), 0, nullptr, &found) == 0) {
    for (size_t i = 0; i < found.gl_pathc; ++i) paths->emplace_back(found.gl_pathv[i]);
  }
  ::globfree(&found);
}

// The first symbol that is missing, or nullptr.
const char* Resolve(void* handle, NcclApi* api) {
  const std::pair<const char*, void*> table[] = {
      {"ncclGetVersion", &api->get_version},
      {"ncclGetUniqueId", &api->get_unique_id},
      {"ncclCommInitRankConfig", &api->comm_init_rank_config},
      {"ncclCommDestroy", &api->comm_destroy},
      {"ncclCommAbort", &api->comm_abort},
      {"ncclCommGetAsyncError", &api->comm_get_async_error},
      {"ncclGetErrorString", &api->get_error_string},
      {"ncclGetLastError", &api->get_last_error},
      {"ncclAllReduce", &api->all_reduce},
      {"ncclReduceScatter", &api->reduce_scatter},
      {"ncclAllGather", &api->all_gather},
      {"ncclBroadcast", &api->broadcast},
      {"ncclSend", &api->send},
      {"ncclRecv", &api->recv},
      {"ncclGroupStart", &api->group_start},
      {"ncclGroupEnd", &api->group_end},
  };
  for (const auto& [name, function] : table) {
    void* const symbol = ::dlsym(handle, name);
    if (symbol == nullptr) return name;
    // POSIX defines the conversion from dlsym's object pointer to a function pointer this way.
    *static_cast<void**>(function) = symbol;
  }
  return nullptr;
}

std::string PathOf(void* handle, const std::string& asked) {
  link_map* map = nullptr;
  if (::dlinfo(handle, RTLD_DI_LINKMAP, static_cast<void*>(&map)) != 0) return asked;
  return map->l_name;
}

StatusOr<const NcclLibrary*> Load(const std::vector<std::string>& paths) {
  std::vector<std::string> reasons;
  for (const std::string& path : paths) {
    void* const handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      reasons.emplace_back(::dlerror());  // NOLINT(concurrency-mt-unsafe): glibc keeps one a thread
      continue;
    }
    auto library = std::make_unique<NcclLibrary>();
    library->path = PathOf(handle, path);
    if (const char* const missing = Resolve(handle, &library->api); missing != nullptr) {
      return base::FailedPrecondition(
          "NCCL: {} has no {}: it is older than {}, which ranks on several GPUs need; install a "
          "newer one or let LD_LIBRARY_PATH name it",
          library->path, missing, VersionText(kOldestNccl));
    }
    if (library->api.get_version(&library->version) != NcclResult::kSuccess ||
        library->version < kOldestNccl) {
      return base::FailedPrecondition(
          "NCCL: {} is version {}, and ranks on several GPUs need {} or later; install a newer one "
          "or let LD_LIBRARY_PATH name it",
          library->path, library->Version(), VersionText(kOldestNccl));
    }
    return library.release();  // it stays loaded
  }
  return base::NotFound(
      "NCCL: ranks on several GPUs need {}, which was not found; install libnccl2 or let "
      "LD_LIBRARY_PATH name its folder (looked for: {}; {})",
      kName, absl::StrJoin(paths, ", "), absl::StrJoin(reasons, "; "));
}

}  // namespace

std::string NcclLibrary::Version() const { return VersionText(version); }

std::vector<std::string> NcclPaths() {
  std::vector<std::string> paths = {kName};
  for (const char* folder : {"/usr/local/cuda/lib64", "/usr/local/cuda/lib"}) {
    AppendMatches(fmt::format("{}/{}", folder, kName), &paths);
  }
  for (const char* root : {"/usr/lib", "/usr/local/lib", "/opt/*/lib", "/opt/*/.venv/lib"}) {
    AppendMatches(fmt::format("{}/python3*/*-packages/nvidia/nccl/lib/{}", root, kName), &paths);
  }
  return paths;
}

StatusOr<const NcclLibrary*> LoadNccl(const std::vector<std::string>& paths) {
  static std::mutex mu;
  static const NcclLibrary* loaded = nullptr;
  const std::lock_guard lock(mu);
  if (loaded == nullptr) {
    ASSIGN_OR_RETURN(loaded, Load(paths));
  }
  return loaded;
}

}  // namespace mt::comm
