// Capture at the second step in which a key comes, launch from then on. The labels of marks inside
// a recording are kept with it and replayed before each launch.
#include "worker/engine/action_recordings.h"

#include "common/base/log.h"

namespace mt::engine {

void ActionRecordings::Disable(const std::string& why) {
  if (!on_) return;
  on_ = false;
  log::Info("recordings off", {{"reason", why}});
}

void ActionRecordings::Run(const ActionKey& key, const std::function<void()>& calls) {
  Entry& entry = entries_.try_emplace(key, Entry{.first_step = steps_}).first->second;
  if (!on() || entry.first_step == steps_) return calls();
  if (entry.recording == nullptr && !Record(calls, &entry)) return calls();
  args_.phases->Replay(entry.marks, [&] { entry.recording->Launch(*args_.stream); });
}

bool ActionRecordings::Record(const std::function<void()>& calls, Entry* entry) {
  std::string why_not;
  args_.phases->BeginRecording();
  entry->recording = args_.device->Record(*args_.stream, calls, &why_not);
  entry->marks = args_.phases->EndRecording();
  if (entry->recording == nullptr) {
    Disable(why_not);
    return false;
  }
  ++num_recordings_;
  return true;
}

}  // namespace mt::engine
