// Memory that the devices of one world share: each maps the others' by its address, since all are
// in one process, unless a test has it refuse as a driver would.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kernels/async/async_world.h"
#include "kernels/core/device.h"

namespace mt::kernels::async {

// What a device shares with the others of its world.
enum class Sharing : uint8_t {
  kNone,        // Device::peers() is nullptr
  kAll,         // all of its memory of the kind kShared; none of another kind, ever
  kNoPath,      // reaches no other device
  kNoExport,    // names none of its memory
  kNoImport,    // maps no memory of others
  kWordsAlone,  // names allocations of at most kMostOfWords bytes
};

inline constexpr int64_t kMostOfWords = 256;

// Of this rank's device.
std::string AsyncUuid(int rank);

// nullptr for kNone. The world must outlive it.
std::unique_ptr<PeerMemory> MakeAsyncPeerMemory(AsyncWorld* world, int rank, Sharing sharing);

}  // namespace mt::kernels::async
