// Hands file descriptors to other processes of this host, each by a number, over a Unix-domain
// socket: how processes share what only a descriptor names (a GPU's memory). The socket's address
// is abstract: it needs no folder, is known to those of the network namespace (the containers of a
// pod share one), and goes with the process, whatever ends it.
//
// Protocol, over SOCK_SEQPACKET: the caller sends the number, 8 bytes in the host's order; the
// answer is one byte, 0 with the descriptor (SCM_RIGHTS) or 1 where there is none of this number.
// Both ends see to it that the other one runs as the same user (SO_PEERCRED).
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/base/files.h"
#include "common/base/mutex.h"
#include "common/base/status.h"

namespace mt::base {

// Thread-safe. A thread of its own answers callers, without blocking for any of them.
class DescriptorServer {
 public:
  struct Limits {
    std::chrono::milliseconds patience = std::chrono::seconds(5);  // with a caller that is silent
    size_t most_callers = 64;  // who have not asked yet; further ones wait to be accepted
  };
  // Errors are those of making the socket.
  static StatusOr<std::unique_ptr<DescriptorServer>> Start(Limits limits);
  static StatusOr<std::unique_ptr<DescriptorServer>> Start() { return Start(Limits{}); }
  // Ends the thread. Callers find the connection closed.
  ~DescriptorServer();
  DescriptorServer(const DescriptorServer&) = delete;
  DescriptorServer& operator=(const DescriptorServer&) = delete;

  // For FetchDescriptor: letters, digits and '-'.
  const std::string& address() const { return address_; }
  // Owns the descriptor from now on; returns its number, which is given to no other one.
  uint64_t Add(Fd fd) LOCKS_EXCLUDED(mu_);
  // Closes it. Nothing where there is none of this number.
  void Remove(uint64_t id) LOCKS_EXCLUDED(mu_);

 private:
  struct Caller {
    Fd fd;
    std::chrono::steady_clock::time_point deadline;
  };

  DescriptorServer(Limits limits, std::string address, Fd listener, Fd stop);
  void Run() LOCKS_EXCLUDED(mu_);
  // Accepts one caller, if it is of this user.
  void Accept(std::vector<Caller>* callers);
  void Answer(int caller) LOCKS_EXCLUDED(mu_);

  const Limits limits_;
  const std::string address_;
  const Fd listener_, stop_;
  Mutex mu_;
  std::map<uint64_t, Fd> descriptors_ GUARDED_BY(mu_);
  uint64_t num_added_ GUARDED_BY(mu_) = 0;
  std::thread thread_;  // last: it uses the others
};

// The descriptor that the server at this address has under this number, as one of this process,
// closed by exec. Blocks for `patience` at most, whatever signals come. kUnavailable: nobody
// listens there (the process has ended, or runs in another network namespace) or it ends;
// kNotFound: no such number; kDeadlineExceeded: no answer; kPermissionDenied: the server is another
// user's; kResourceExhausted: too many descriptors are open here.
StatusOr<Fd> FetchDescriptor(const std::string& address, uint64_t id,
                             std::chrono::milliseconds patience = std::chrono::seconds(30));

}  // namespace mt::base
