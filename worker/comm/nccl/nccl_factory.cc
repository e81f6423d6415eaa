// Members introduce themselves over the store; the first one looks at all and hands out the id by
// which NCCL finds its own way, or the reason why there is none:
//
//   nccl/NAME/INDEX  "VERSION UUID"
//   nccl/NAME        "yes " and the id, "no REASON", or "late REASON" where a member has not come
#include "worker/comm/nccl/nccl_factory.h"

#include <chrono>
#include <cstring>
#include <future>
#include <map>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "common/base/log.h"
#include "common/layout/group_axes.h"
#include "worker/comm/device_watch.h"
#include "worker/comm/nccl/nccl_group.h"
#include "worker/comm/self_group.h"

namespace mt::comm {
namespace {

constexpr std::string_view kYes = "yes ";
constexpr std::string_view kNo = "no ";
constexpr std::string_view kLate = "late ";

// The most thread blocks that a group's kernels take. Groups that work beside products take few,
// since each block keeps one SM from them; tensor groups have the device to themselves. Links have
// as many as NCCL likes: two carry a fifth of what the path does, and the next stage waits.
int MostBlocks(std::string_view name) {
  using layout::GroupUse;
  static const std::map<std::string_view, int> by_use = {{Name(GroupUse::kControl), 1},
                                                         {Name(GroupUse::kTensorControl), 4},
                                                         {Name(GroupUse::kTied), 4},
                                                         {Name(GroupUse::kGradients), 8},
                                                         {Name(GroupUse::kWeights), 8}};
  const auto found = by_use.find(name.substr(0, name.find('/')));
  return found == by_use.end() ? NcclConfig::kUndefined : found->second;
}

class NcclFactory final : public GroupFactory {
 public:
  NcclFactory(RendezvousStore* store, CommConfig config, const NcclLibrary* library,
              kernels::Device* device)
      : store_(store),
        config_(std::move(config)),
        library_(library),
        device_(device),
        uuid_(device->Uuid()),
        watch_(device) {}

  StatusOr<std::unique_ptr<ProcessGroup>> Create(GroupSpec spec) override {
    RETURN_IF_ERROR(CheckSpec(spec));
    if (spec.members.size() == 1) return MakeSelfGroup(std::move(spec), config_, device_);
    const base::MonotonicTime deadline = base::Clock::Real()->Now() + config_.connect_timeout;
    ASSIGN_OR_RETURN(const NcclUniqueId id, Meet(spec, deadline));
    ASSIGN_OR_RETURN(NcclComm comm, Connect(spec, id, deadline));
    return std::make_unique<NcclGroup>(
        std::move(spec), config_,
        NcclGroup::Args{.library = library_, .comm = comm, .device = device_, .watch = &watch_});
  }

  DeviceWatch* watch() override { return &watch_; }

 private:
  static std::string KeyOf(const GroupSpec& spec) { return fmt::format("nccl/{}", spec.name); }

  std::string Me() const { return fmt::format("{} {}", library_->Version(), uuid_); }

  // The id of the group's communicator.
  StatusOr<NcclUniqueId> Meet(const GroupSpec& spec, base::MonotonicTime deadline) const {
    const std::string key = KeyOf(spec);
    RETURN_IF_ERROR(store_->Set(fmt::format("{}/{}", key, spec.my_index), Me()));
    if (spec.my_index == 0) {
      // Before the others give up, so that they hear who is missing.
      const base::MonotonicTime limit = deadline - config_.connect_timeout / 10;
      RETURN_IF_ERROR(store_->Set(key, Answer(spec, limit)));
    }
    auto answer = store_->Get(key, deadline);
    RETURN_IF_ERROR(base::Annotate(
        answer.status(), fmt::format("group {}: waiting for rank {}", spec.name, spec.members[0])));
    if (answer->starts_with(kNo)) {
      return base::FailedPrecondition("group {}: {}", spec.name, answer->substr(kNo.size()));
    }
    if (answer->starts_with(kLate)) {
      return base::Error(absl::StatusCode::kDeadlineExceeded, "group {}: {}", spec.name,
                         answer->substr(kLate.size()));
    }
    NcclUniqueId id;
    if (answer->size() != kYes.size() + id.bytes.size()) {
      return base::FailedPrecondition("group {}: rank {} runs another version", spec.name,
                                      spec.members[0]);
    }
    std::memcpy(id.bytes.data(), answer->data() + kYes.size(), id.bytes.size());
    return id;
  }

  // What the first member tells all.
  std::string Answer(const GroupSpec& spec, base::MonotonicTime deadline) const {
    const auto no = [](const std::string& why) { return std::string(kNo) + why; };
    std::map<std::string, int> rank_of_gpu;
    for (size_t i = 0; i < spec.members.size(); ++i) {
      const int rank = spec.members[i];
      const auto member = store_->Get(fmt::format("{}/{}", KeyOf(spec), i), deadline);
      if (!member.ok()) {
        return fmt::format("{}rank {} has not come: {}", kLate, rank,
                           base::Message(member.status()));
      }
      const size_t space = member->find(' ');
      const std::string version = member->substr(0, space);
      if (version != library_->Version()) {
        return no(
            fmt::format("rank {} has NCCL {} and rank {} NCCL {}; install one version on all "
                        "nodes",
                        spec.members[0], library_->Version(), rank, version));
      }
      const std::string gpu = space == std::string::npos ? "" : member->substr(space + 1);
      if (gpu.empty()) continue;
      const auto [other, is_new] = rank_of_gpu.emplace(gpu, rank);
      if (!is_new) {
        return no(fmt::format("ranks {} and {} were given one GPU, {}", other->second, rank, gpu));
      }
    }
    NcclUniqueId id;
    device_->BindThread();
    const NcclResult made = library_->api.get_unique_id(&id);
    if (made != NcclResult::kSuccess) {
      return no(fmt::format("NCCL makes no id: {}", library_->api.get_error_string(made)));
    }
    return std::string(kYes) + std::string(id.bytes.data(), id.bytes.size());
  }

  // Blocks until all members have joined. A thread joins, so that a member that does not come holds
  // nobody beyond the deadline; it is left behind then, and the process is about to end.
  StatusOr<NcclComm> Connect(const GroupSpec& spec, const NcclUniqueId& id,
                             base::MonotonicTime deadline) const {
    struct Joined {
      NcclResult result = NcclResult::kSuccess;
      NcclComm comm = nullptr;
    };
    std::packaged_task<Joined()> join([library = library_, device = device_, id, name = spec.name,
                                       size = static_cast<int>(spec.members.size()),
                                       index = spec.my_index] {
      device->BindThread();
      NcclConfig config;
      config.blocking = 1;
      config.split_share = 0;
      config.max_ctas = MostBlocks(name);
      config.min_ctas = config.max_ctas == NcclConfig::kUndefined ? NcclConfig::kUndefined : 1;
      Joined joined;
      joined.result = library->api.comm_init_rank_config(&joined.comm, size, id, index, &config);
      return joined;
    });
    std::future<Joined> result = join.get_future();
    std::thread thread(std::move(join));
    if (result.wait_until(deadline) != std::future_status::ready) {
      thread.detach();
      return base::Error(absl::StatusCode::kDeadlineExceeded,
                         "group {}: its {} members have not connected within {:.0f} s", spec.name,
                         spec.members.size(),
                         std::chrono::duration<double>(config_.connect_timeout).count());
    }
    thread.join();
    const Joined joined = result.get();
    if (joined.result != NcclResult::kSuccess) {
      const char* const detail = library_->api.get_last_error(nullptr);
      return base::Unavailable(
          "group {}: NCCL {} ({}): {}{}{}; NCCL_DEBUG=INFO says more", spec.name,
          library_->Version(), library_->path, library_->api.get_error_string(joined.result),
          detail != nullptr && *detail != '\0' ? ": " : "", detail == nullptr ? "" : detail);
    }
    return joined.comm;
  }

  RendezvousStore* const store_;
  const CommConfig config_;
  const NcclLibrary* const library_;
  kernels::Device* const device_;
  const std::string uuid_;
  DeviceWatch watch_;
};

}  // namespace

std::unique_ptr<GroupFactory> MakeNcclFactory(RendezvousStore* store, CommConfig config,
                                              const NcclLibrary* library, kernels::Device* device) {
  return std::make_unique<NcclFactory>(store, std::move(config), library, device);
}

}  // namespace mt::comm
