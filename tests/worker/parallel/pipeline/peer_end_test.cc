// What an end of a link does as it is destroyed: on a GPU it waits for the device where it lets go
// of the peer's memory, and a peer that has died may have stored the end's word meanwhile.
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include <gtest/gtest.h>

#include "kernels/async/async_world.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/worker/async/async_group.h"
#include "worker/comm/device_watch.h"
#include "worker/parallel/pipeline/peer_link.h"

namespace mt::parallel {
namespace {

// A peer's word. Letting go of it takes as long as the own word is not far ahead, to which it is
// set back first: a wait of the device that a late store has brought back.
class WordOfTheDead final : public kernels::DeviceBuffer {
 public:
  WordOfTheDead(uint32_t* own, bool* was_ended) : own_(own), was_ended_(was_ended) {}
  ~WordOfTheDead() override {
    using std::chrono::steady_clock;
    const auto end = steady_clock::now() + std::chrono::seconds(10);
    const std::atomic_ref<uint32_t> own(*own_);
    own.store(1);
    while (own.load() == 1 && steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    *was_ended_ = own.load() != 1;
  }
  WordOfTheDead(const WordOfTheDead&) = delete;
  WordOfTheDead& operator=(const WordOfTheDead&) = delete;
  void* data() override { return &word_; }
  int64_t bytes() const override { return sizeof(word_); }

 private:
  uint32_t word_ = 0;
  uint32_t* const own_;
  bool* const was_ended_;
};

TEST(PeerEndTest, ABrokenEndIsWatchedUntilItHasLetGo) {
  const auto cpu = kernels::cpu::MakeCpuBackend({}).value();
  kernels::Device& device = cpu->device();
  comm::DeviceWatch watch(&device);
  for (const int index : {kSenderIndex, kReceiverIndex}) {
    kernels::async::AsyncWorld world({});
    comm::AsyncHub hub({.world = &world, .on_host = true, .config = {}});
    bool was_ended = false;
    PeerEnd end{.host = hub.Create({.name = "link", .members = {0, 1}, .my_index = index}).value(),
                .word = device.Allocate(sizeof(uint32_t), kernels::MemoryKind::kShared),
                .watch = &watch};
    end.peer_word =
        std::make_unique<WordOfTheDead>(static_cast<uint32_t*>(end.word->data()), &was_ended);
    if (index == kSenderIndex) {
      PeerSender(std::move(end), &device).Abort("the peer has died");
    } else {
      PeerReceiver(std::move(end), &device).Abort("the peer has died");
    }
    EXPECT_TRUE(was_ended) << index;
  }
}

}  // namespace
}  // namespace mt::parallel
