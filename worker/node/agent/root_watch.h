// Keeps the identity of this node's checkpoint root (worker/checkpoint/format/root_marker.h): looks
// for the root's marker, makes it where the root has none, and looks again at an interval, so that
// a mount that comes late, or goes, is noticed. Has a thread of its own, because a file server that
// hangs blocks. Thread-safe.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

namespace mt::node {

class RootWatch {
 public:
  struct Config {
    std::string root;  // absolute
    std::string node;  // this node's name, for the marker
    // How often it looks: while the root has no identity, and once it has one.
    std::chrono::milliseconds search{1000};
    std::chrono::milliseconds interval{10'000};
    // How long the constructor waits for the first look.
    std::chrono::milliseconds first_look{5000};
    // Called on the watch's thread, after the first look, when the identity has changed; may be
    // empty.
    std::function<void()> changed;
  };

  explicit RootWatch(Config config);
  // Joins the thread; blocks while a look is under way.
  ~RootWatch();
  RootWatch(const RootWatch&) = delete;
  RootWatch& operator=(const RootWatch&) = delete;

  // The id in the root's marker when it was last looked at; empty where the root is missing or has
  // none. The reason is in the log.
  std::string id() const;

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace mt::node
