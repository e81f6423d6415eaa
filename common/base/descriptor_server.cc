// One thread polls the listener and all callers. Messages of SOCK_SEQPACKET are whole, so a request
// is one read and an answer one write, into a socket that has held nothing: neither waits.
#include "common/base/descriptor_server.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <utility>

#include "common/base/check.h"
#include "common/base/ids.h"

namespace mt::base {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr char kFound = 0, kNoSuch = 1;
// Between tries to accept while this process has no descriptors left.
constexpr int kPauseMs = 100;

struct Address {
  sockaddr_un un{};
  socklen_t size = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&un); }
};

// nullopt: too long.
std::optional<Address> AddressOf(const std::string& name) {
  Address address;
  if (name.empty() || name.size() >= sizeof(address.un.sun_path)) return std::nullopt;
  address.un.sun_family = AF_UNIX;
  std::memcpy(address.un.sun_path + 1, name.data(), name.size());  // behind a zero: abstract
  address.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

bool IsOwnUser(int socket) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
         peer.uid == ::geteuid();
}

// A message of one byte, with room for a descriptor beside it.
struct Packet {
  explicit Packet(char byte) : answer(byte) {
    header.msg_iov = &piece;
    header.msg_iovlen = 1;
  }
  Packet(const Packet&) = delete;
  Packet& operator=(const Packet&) = delete;
  // For one, not for what alignment would let in besides.
  void MakeRoom() {
    header.msg_control = control;
    header.msg_controllen = CMSG_LEN(sizeof(int));
  }

  char answer;
  iovec piece{&answer, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};
};

// The descriptor that came with a message.
Fd DescriptorOf(Packet* packet) {
  const cmsghdr* const first = CMSG_FIRSTHDR(&packet->header);
  if (first == nullptr || first->cmsg_level != SOL_SOCKET || first->cmsg_type != SCM_RIGHTS ||
      first->cmsg_len != CMSG_LEN(sizeof(int))) {
    return {};
  }
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(first), sizeof(fd));
  return Fd(fd);
}

// What is left of the time for a fetch is the limit of the socket's next call; false: nothing.
bool LimitWaits(int socket, steady_clock::time_point deadline) {
  const auto left = std::chrono::floor<microseconds>(deadline - steady_clock::now());
  if (left <= microseconds::zero()) return false;
  const auto whole = std::chrono::floor<std::chrono::seconds>(left);
  const timeval limit{.tv_sec = whole.count(), .tv_usec = (left - whole).count()};
  for (const int option : {SO_SNDTIMEO, SO_RCVTIMEO}) {  // the first holds for connect, too
    CHECK_EQ(::setsockopt(socket, SOL_SOCKET, option, &limit, sizeof(limit)), 0);
  }
  return true;
}

// Calls that have a limit end with EINTR whatever the signal's handler says, and also where this
// process was stopped and goes on. EAGAIN: the deadline is over.
template <class Call>
ssize_t Until(steady_clock::time_point deadline, int socket, const Call& call) {
  while (LimitWaits(socket, deadline)) {
    const ssize_t result = call();
    if (result >= 0 || errno != EINTR) return result;
  }
  errno = EAGAIN;
  return -1;
}

bool IsTimeout(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

// What a fetch asks for, and until when.
struct Question {
  Address to;
  std::string where;
  uint64_t id = 0;
  milliseconds patience{};
  steady_clock::time_point deadline = steady_clock::now() + patience;

  Status Late() const {
    return Error(absl::StatusCode::kDeadlineExceeded, "{} does not answer within {} ms", where,
                 patience.count());
  }
  Status Closed() const { return Unavailable("{} has closed the connection", where); }
};

StatusOr<Fd> Connect(const Question& question) {
  Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!socket) return ErrnoError(errno, "making a Unix-domain socket");
  const auto connect = [&] { return ::connect(socket.get(), question.to.get(), question.to.size); };
  if (Until(question.deadline, socket.get(), connect) != 0) {
    if (IsTimeout(errno)) return question.Late();
    if (errno != ECONNREFUSED) return ErrnoError(errno, "connecting to " + question.where);
    return Unavailable("{} has ended, or runs in another network namespace (container)",
                       question.where);
  }
  if (!IsOwnUser(socket.get())) {
    return Error(absl::StatusCode::kPermissionDenied, "{} runs as another user", question.where);
  }
  return socket;
}

StatusOr<Fd> Ask(const Question& question) {
  ASSIGN_OR_RETURN(const Fd socket, Connect(question));
  const uint64_t id = question.id;
  const auto send = [&] { return ::send(socket.get(), &id, sizeof(id), MSG_NOSIGNAL); };
  if (Until(question.deadline, socket.get(), send) != sizeof(id))
    return IsTimeout(errno) ? question.Late() : question.Closed();
  Packet packet(kNoSuch);
  packet.MakeRoom();
  const auto receive = [&] { return ::recvmsg(socket.get(), &packet.header, MSG_CMSG_CLOEXEC); };
  const ssize_t got = Until(question.deadline, socket.get(), receive);
  if (got < 0 && IsTimeout(errno)) return question.Late();
  if (got != 1) return question.Closed();
  if (packet.answer == kNoSuch) return NotFound("{} has none of number {}", question.where, id);
  Fd fd = DescriptorOf(&packet);
  if (!fd) {
    return Error(absl::StatusCode::kResourceExhausted,
                 "{} sent a descriptor, for which this process had no room (ulimit -n)",
                 question.where);
  }
  return fd;
}

}  // namespace

StatusOr<std::unique_ptr<DescriptorServer>> DescriptorServer::Start(Limits limits) {
  std::string name = "megatrain-" + RandomHex(16);
  const std::optional<Address> address = AddressOf(name);
  if (!address) return InvalidArgument("\"{}\" is no abstract address", name);
  Fd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener) return ErrnoError(errno, "making a Unix-domain socket");
  if (::bind(listener.get(), address->get(), address->size) != 0 ||
      ::listen(listener.get(), SOMAXCONN) != 0) {
    return ErrnoError(errno, "listening at the abstract address " + name);
  }
  Fd stop(::eventfd(0, EFD_CLOEXEC));
  if (!stop) return ErrnoError(errno, "eventfd");
  return std::unique_ptr<DescriptorServer>(
      new DescriptorServer(limits, std::move(name), std::move(listener), std::move(stop)));
}

DescriptorServer::DescriptorServer(Limits limits, std::string address, Fd listener, Fd stop)
    : limits_(limits),
      address_(std::move(address)),
      listener_(std::move(listener)),
      stop_(std::move(stop)),
      thread_([this] { Run(); }) {
  ::pthread_setname_np(thread_.native_handle(), "mt-descriptors");
}

DescriptorServer::~DescriptorServer() {
  CHECK_EQ(::eventfd_write(stop_.get(), 1), 0);
  thread_.join();
}

uint64_t DescriptorServer::Add(Fd fd) {
  const MutexLock lock(&mu_);
  descriptors_[++num_added_] = std::move(fd);
  return num_added_;
}

void DescriptorServer::Remove(uint64_t id) {
  const MutexLock lock(&mu_);
  descriptors_.erase(id);
}

void DescriptorServer::Run() {
  std::vector<Caller> callers;
  std::vector<pollfd> polled;
  while (true) {
    const bool has_room = callers.size() < limits_.most_callers;
    polled = {{stop_.get(), POLLIN, 0}, {has_room ? listener_.get() : -1, POLLIN, 0}};
    int timeout_ms = -1;
    for (const Caller& caller : callers) {
      polled.push_back({caller.fd.get(), POLLIN, 0});
      const auto left = std::chrono::ceil<milliseconds>(caller.deadline - steady_clock::now());
      const int ms = static_cast<int>(std::max<int64_t>(left.count(), 0));
      timeout_ms = timeout_ms < 0 ? ms : std::min(timeout_ms, ms);
    }
    if (::poll(polled.data(), polled.size(), timeout_ms) < 0) {
      CHECK_EQ(errno, EINTR) << "poll";
      continue;
    }
    if (polled[0].revents != 0) return;
    const auto now = steady_clock::now();
    std::vector<Caller> silent;
    for (size_t i = 0; i < callers.size(); ++i) {
      if (polled[i + 2].revents != 0) {
        Answer(callers[i].fd.get());
      } else if (now < callers[i].deadline) {
        silent.push_back(std::move(callers[i]));
      }
    }
    callers = std::move(silent);
    if (polled[1].revents != 0) Accept(&callers);
  }
}

void DescriptorServer::Accept(std::vector<Caller>* callers) {
  Fd caller(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!caller) {
    if (errno != EMFILE && errno != ENFILE && errno != ENOMEM && errno != ENOBUFS) return;
    pollfd stop{stop_.get(), POLLIN, 0};
    ::poll(&stop, 1, kPauseMs);  // the listener stays ready meanwhile
    return;
  }
  if (!IsOwnUser(caller.get())) return;
  callers->push_back({std::move(caller), steady_clock::now() + limits_.patience});
}

void DescriptorServer::Answer(int caller) {
  uint64_t id = 0;
  // With the size that was sent, which may be more.
  if (::recv(caller, &id, sizeof(id), MSG_DONTWAIT | MSG_TRUNC) != sizeof(id)) return;
  const MutexLock lock(&mu_);  // the descriptor stays open until it is sent
  const auto found = descriptors_.find(id);
  Packet packet(found == descriptors_.end() ? kNoSuch : kFound);
  if (found != descriptors_.end()) {
    packet.MakeRoom();
    cmsghdr* const first = CMSG_FIRSTHDR(&packet.header);
    first->cmsg_level = SOL_SOCKET;
    first->cmsg_type = SCM_RIGHTS;
    first->cmsg_len = CMSG_LEN(sizeof(int));
    const int fd = found->second.get();
    std::memcpy(CMSG_DATA(first), &fd, sizeof(fd));
  }
  // A caller that has gone is nobody's loss.
  static_cast<void>(::sendmsg(caller, &packet.header, MSG_DONTWAIT | MSG_NOSIGNAL));
}

StatusOr<Fd> FetchDescriptor(const std::string& address, uint64_t id, milliseconds patience) {
  const std::optional<Address> to = AddressOf(address);
  if (!to) return InvalidArgument("{} bytes are no abstract address", address.size());
  const Question question{.to = *to,
                          .where = "the process that hands out descriptors at " + address,
                          .id = id,
                          .patience = patience};
  StatusOr<Fd> fd = Ask(question);
  // Where this process was stopped before it asked, the server has given it up as silent; and of a
  // server that has ended a second try says so.
  if (!absl::IsUnavailable(fd.status())) return fd;
  return Ask(question);
}

}  // namespace mt::base
