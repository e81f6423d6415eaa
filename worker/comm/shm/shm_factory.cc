// The first member makes the memory and offers it, the others try it, and each tells the result:
//
//   shm/NAME/0      "yes HOST NAMESPACE PID FD NONCE", or "no REASON"
//   shm/NAME/INDEX  "yes", "no REASON", or "elsewhere HOST"
//
// All members read all answers and so come to the same conclusion: shared memory if all say yes.
// The answer is given once the member has its seat, so with the last yes everybody is there.
#include "worker/comm/shm/shm_factory.h"

#include <atomic>
#include <filesystem>
#include <iterator>
#include <optional>
#include <sstream>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

#include "common/base/log.h"
#include "worker/comm/self_group.h"
#include "worker/comm/shm/segment.h"
#include "worker/comm/shm/shm_group.h"

namespace mt::comm {
namespace {

constexpr char kYes[] = "yes";
constexpr char kElsewhere[] = "elsewhere";

std::string No(const Status& why) { return "no " + base::Message(why); }

// Where a process id means the same process: "" if this system does not tell.
std::string ProcessNamespace(const std::string& proc) {
  std::error_code error;
  return std::filesystem::read_symlink(proc + "/self/ns/pid", error).string();
}

Status NoHost() {
  return base::Unavailable("/proc/sys is hidden, so it cannot tell whether they share a host");
}

class ShmFactory final : public GroupFactory {
 public:
  ShmFactory(RendezvousStore* store, CommConfig config, GroupFactory* otherwise, std::string proc)
      : store_(store), config_(std::move(config)), otherwise_(otherwise), proc_(std::move(proc)) {}

  StatusOr<std::unique_ptr<ProcessGroup>> Create(GroupSpec spec) override {
    RETURN_IF_ERROR(CheckSpec(spec));
    if (spec.members.size() == 1) return MakeSelfGroup(std::move(spec), config_);
    if (spec.words && static_cast<int>(spec.members.size()) > kLargestMesh) {
      return otherwise_->Create(std::move(spec));  // to agree, each would read all others' answers
    }
    const base::MonotonicTime deadline = base::Clock::Real()->Now() + config_.connect_timeout;
    ASSIGN_OR_RETURN(std::unique_ptr<ShmSegment> segment, Agree(spec, deadline));
    if (segment == nullptr) return otherwise_->Create(std::move(spec));
    return std::make_unique<ShmGroup>(std::move(spec), config_, std::move(segment));
  }

 private:
  // What one member says, and its seat if that is yes.
  struct Answer {
    std::string text;
    std::unique_ptr<ShmSegment> segment;
  };

  // The first answer that is not yes.
  struct Refusal {
    int index = 0;
    std::string answer;
  };

  static std::string KeyOf(const GroupSpec& spec, int index) {
    return fmt::format("shm/{}/{}", spec.name, index);
  }

  Answer Offer(const GroupSpec& spec) const {
    const std::string pids = ProcessNamespace(proc_);
    if (pids.empty()) return {.text = No(base::Unavailable("{} does not show processes", proc_))};
    if (config_.host.empty()) return {.text = No(NoHost())};
    auto segment = ShmSegment::Make(static_cast<int>(spec.members.size()));
    if (!segment.ok()) return {.text = No(segment.status())};
    const Status seated = (*segment)->TakeSeat(spec.my_index);
    if (!seated.ok()) return {.text = No(seated)};
    return {.text = fmt::format("{} {} {} {} {} {}", kYes, config_.host, pids, ::getpid(),
                                (*segment)->fd(), (*segment)->Nonce()),
            .segment = std::move(*segment)};
  }

  Answer Try(const std::string& offer, const GroupSpec& spec) const {
    if (!offer.starts_with(kYes)) return {.text = kYes};  // the offer decides
    if (config_.host.empty()) return {.text = No(NoHost())};
    std::istringstream text(offer);
    const std::vector<std::string> words{std::istream_iterator<std::string>(text), {}};
    if (words.size() != 6) {
      return {.text = No(base::FailedPrecondition("the first member runs another version"))};
    }
    if (words[1] != config_.host) return {.text = fmt::format("{} {}", kElsewhere, config_.host)};
    if (words[2] != ProcessNamespace(proc_)) {
      return {.text = No(base::FailedPrecondition(
                  "it does not see the first member's process: they are in different containers"))};
    }
    auto segment = ShmSegment::Open(fmt::format("{}/{}/fd/{}", proc_, words[3], words[4]), words[5],
                                    static_cast<int>(spec.members.size()));
    if (!segment.ok()) return {.text = No(segment.status())};
    const Status seated = (*segment)->TakeSeat(spec.my_index);
    if (!seated.ok()) return {.text = No(seated)};
    // Without locks that others see, nobody would be missed.
    if (!(*segment)->IsSeated(0)) {
      return {.text = No(base::FailedPrecondition("it does not see the first member's lock"))};
    }
    return {.text = kYes, .segment = std::move(*segment)};
  }

  StatusOr<std::string> AnswerOf(const GroupSpec& spec, int index, base::MonotonicTime deadline) {
    auto answer = store_->Get(KeyOf(spec, index), deadline);
    if (answer.ok()) return answer;
    return base::Annotate(answer.status(),
                          fmt::format("group {}: waiting for rank {} (world {})", spec.name, index,
                                      spec.members[static_cast<size_t>(index)]));
  }

  // The segment with this member's seat, or nullptr if the members are to do without.
  StatusOr<std::unique_ptr<ShmSegment>> Agree(const GroupSpec& spec, base::MonotonicTime deadline) {
    Answer mine;
    if (spec.my_index == 0) {
      mine = Offer(spec);
    } else {
      ASSIGN_OR_RETURN(const std::string offer, AnswerOf(spec, 0, deadline));
      mine = Try(offer, spec);
    }
    RETURN_IF_ERROR(store_->Set(KeyOf(spec, spec.my_index), mine.text));
    std::optional<Refusal> refusal, elsewhere;  // the first of each
    for (int index = 0; index < static_cast<int>(spec.members.size()); ++index) {
      StatusOr<std::string> answer = mine.text;
      if (index != spec.my_index) answer = AnswerOf(spec, index, deadline);
      if (!answer.ok()) {
        // The others may find that all have said yes: they wait for nobody who has gone on.
        if (mine.segment != nullptr)
          mine.segment->member(spec.my_index).state.store(MemberState::kBroken);
        return answer.status();
      }
      if (answer->starts_with(kYes)) continue;
      if (!refusal) refusal = Refusal{index, *answer};
      if (answer->starts_with(kElsewhere) && !elsewhere) elsewhere = Refusal{index, *answer};
    }
    if (!refusal) return std::move(mine.segment);
    if (spec.my_index == 0) elsewhere ? Tell(spec, *elsewhere) : Warn(spec, *refusal);
    return nullptr;
  }

  // Between hosts there is nothing to warn of.
  void Tell(const GroupSpec& spec, const Refusal& refusal) {
    if (told_.exchange(true)) return;
    log::Info("ranks of different hosts use TCP",
              {{"group", spec.name},
               {"host", config_.host},
               {"rank", spec.members[static_cast<size_t>(refusal.index)]},
               {"on", refusal.answer.substr(refusal.answer.find(' ') + 1)}});
  }

  void Warn(const GroupSpec& spec, const Refusal& refusal) {
    if (warned_.exchange(true)) return;
    log::Warn("ranks of one host cannot share memory and use TCP, which is slower",
              {{"group", spec.name},
               {"rank", spec.members[static_cast<size_t>(refusal.index)]},
               {"why", refusal.answer.substr(refusal.answer.find(' ') + 1)}});
  }

  RendezvousStore* const store_;
  const CommConfig config_;
  GroupFactory* const otherwise_;
  const std::string proc_;
  std::atomic<bool> told_ = false, warned_ = false;  // once for all groups each
};

}  // namespace

std::unique_ptr<GroupFactory> MakeShmFactory(RendezvousStore* store, CommConfig config,
                                             GroupFactory* otherwise, std::string proc) {
  return std::make_unique<ShmFactory>(store, std::move(config), otherwise, std::move(proc));
}

}  // namespace mt::comm
