// The members tell each other where they are, then the names of their words, then whether they
// could map those of the others; after each all know the same.
#include "worker/comm/copies/copy_factory.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "common/base/log.h"
#include "worker/comm/copies/copy_group.h"
#include "worker/comm/copies/exchange.h"
#include "worker/comm/device_watch.h"
#include "worker/comm/self_group.h"

namespace mt::comm {
namespace {

using kernels::DeviceBuffer;
using kernels::Stream;

class CopyFactory final : public GroupFactory {
 public:
  explicit CopyFactory(CopyFactoryArgs args)
      : args_(std::move(args)), watch_(args_.device, args_.watched) {}

  StatusOr<std::unique_ptr<ProcessGroup>> Create(GroupSpec spec) override {
    RETURN_IF_ERROR(CheckSpec(spec));
    if (spec.members.size() == 1) return MakeSelfGroup(std::move(spec), args_.config, args_.device);
    if (spec.members.size() > CopyGroup::kMostMembers) return Otherwise(std::move(spec));
    ASSIGN_OR_RETURN(std::unique_ptr<ProcessGroup> host, args_.host->Create(spec));
    ASSIGN_OR_RETURN(std::unique_ptr<PeerWords> words, Meet(*host));
    if (words == nullptr) return Otherwise(std::move(spec));
    return std::make_unique<CopyGroup>(std::move(spec), args_.config,
                                       CopyGroup::Args{.host = std::move(host),
                                                       .device = args_.device,
                                                       .vector = args_.vector,
                                                       .words = std::move(words),
                                                       .watch = &watch_});
  }

 private:
  StatusOr<std::unique_ptr<ProcessGroup>> Otherwise(GroupSpec spec) const {
    if (spec.own_kind) return std::unique_ptr<ProcessGroup>();
    return args_.otherwise->Create(std::move(spec));
  }

  // nullptr if there is a member that does not write all others' memory, or is not written.
  StatusOr<std::unique_ptr<PeerWords>> Meet(ProcessGroup& host) const {
    kernels::Device& device = *args_.device;
    const auto stream = device.CreateStream(kernels::StreamPriority::kLow);
    ASSIGN_OR_RETURN(const std::vector<std::string> places,
                     Exchange(host, *stream, Join({host.host_identity(), device.Uuid()})));
    std::string why_not;
    const bool together = FindPaths(places, host, &why_not);
    PeerWords::Args words{.rescue = &watch_.rescue(), .device = &device, .my_index = host.rank()};
    std::string name;
    if (together && why_not.empty()) {
      words.own = device.Allocate(PeerWords::Bytes(host.size()), kernels::MemoryKind::kShared);
      device.Zero(*stream, words.own->data(), words.own->bytes());
      stream->Synchronize();
      name = device.peers()->Export(words.own->data(), &why_not);
    }
    ASSIGN_OR_RETURN(const std::vector<std::string> names, Exchange(host, *stream, name));
    for (int peer = 0; peer < host.size(); ++peer) {
      const std::string& theirs = names[static_cast<size_t>(peer)];
      words.peers.push_back(nullptr);
      if (peer == host.rank() || theirs.empty() || !why_not.empty()) continue;
      words.peers.back() = device.peers()->Import(theirs, &why_not);
    }
    const bool all_named = std::none_of(names.begin(), names.end(),
                                        [](const std::string& text) { return text.empty(); });
    ASSIGN_OR_RETURN(const std::vector<std::string> answers, Exchange(host, *stream, why_not));
    const auto refusal = std::find_if(answers.begin(), answers.end(),
                                      [](const std::string& text) { return !text.empty(); });
    if (all_named && refusal == answers.end()) return std::make_unique<PeerWords>(std::move(words));
    if (together && refusal != answers.end() && host.rank() == 0) {
      log::Warn(
          "GPUs of one host communicate by NCCL instead of copies, which is slower",
          {{"group", host.name()},
           {"rank", std::to_string(host.WorldRank(static_cast<int>(refusal - answers.begin())))},
           {"why", *refusal}});
    }
    // Some may have mapped others' words, which live until they all have let go.
    words.peers.clear();
    RETURN_IF_ERROR(host.Barrier(*stream));
    return std::unique_ptr<PeerWords>();
  }

  // Whether all members are on one host; in *why_not what then keeps this one from the others.
  bool FindPaths(const std::vector<std::string>& places, const ProcessGroup& host,
                 std::string* why_not) const {
    kernels::Device& device = *args_.device;
    for (size_t i = 0; i < places.size(); ++i) {
      const std::vector<std::string> place = Split(places[i]);
      if (place.size() != 2 || place[0].empty() || place[0] != host.host_identity()) return false;
    }
    if (device.peers() == nullptr) {
      *why_not = device.Describe() + " shares no memory";
      return true;
    }
    for (size_t i = 0; i < places.size() && why_not->empty(); ++i) {
      const std::string uuid = Split(places[i])[1];
      if (static_cast<int>(i) == host.rank() || device.peers()->CanReach(uuid)) continue;
      *why_not =
          fmt::format("there is no path between GPUs {} and {}, or this process does not see both",
                      device.Uuid(), uuid);
    }
    return true;
  }

  const CopyFactoryArgs args_;
  mutable DeviceWatch watch_;
};

}  // namespace

std::unique_ptr<GroupFactory> MakeCopyFactory(CopyFactoryArgs args) {
  return std::make_unique<CopyFactory>(std::move(args));
}

}  // namespace mt::comm
