// A listening socket's inode stands in /proc/net/tcp[6]; its owner has a link to it among its
// files.
#include "client/session/local_port.h"

#include <arpa/inet.h>
#include <cerrno>
#include <filesystem>
#include <netinet/in.h>
#include <sstream>
#include <string_view>
#include <sys/socket.h>
#include <system_error>

#include "common/base/files.h"

namespace mt::client {
namespace {

constexpr char kSomebody[] = "another program";

sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// A socket that is bound to this port of 127.0.0.1; 0: any free one.
StatusOr<base::Fd> Bound(uint16_t port) {
  base::Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return base::ErrnoError(errno, "socket");
  // As servers do: a connection that is being closed is not in the way.
  const int on = 1;
  if (port != 0) ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  const sockaddr_in address = Loopback(port);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return base::ErrnoError(errno, fmt::format("bind to 127.0.0.1:{}", port));
  }
  return fd;
}

// The inode of the socket that listens at the port, by one of the kernel's tables; "": none.
std::string ListeningInode(const char* table, uint16_t port) {
  const auto text = base::ReadFile(table);
  if (!text.ok()) return "";
  std::istringstream lines(*text);
  std::string line;
  std::getline(lines, line);  // names of the columns
  const std::string wanted = fmt::format(":{:04X}", port);
  while (std::getline(lines, line)) {
    std::istringstream fields(line);
    std::string number, local, remote, state, queues, timer, retransmits, uid, timeout, inode;
    fields >> number >> local >> remote >> state >> queues >> timer >> retransmits >> uid >>
        timeout >> inode;
    constexpr std::string_view kListening = "0A";
    if (state == kListening && local.ends_with(wanted)) return inode;
  }
  return "";
}

bool HasFile(const std::filesystem::path& process, const std::string& link) {
  std::error_code error;
  for (const auto& file : std::filesystem::directory_iterator(process / "fd", error)) {
    std::error_code gone;
    if (std::filesystem::read_symlink(file.path(), gone) == link && !gone) return true;
  }
  return false;
}

}  // namespace

StatusOr<std::string> FreeLocalAddress() {
  ASSIGN_OR_RETURN(const base::Fd fd, Bound(0));
  sockaddr_in address{};
  socklen_t size = sizeof(address);
  if (::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
    return base::ErrnoError(errno, "find a free port on 127.0.0.1");
  return fmt::format("127.0.0.1:{}", ntohs(address.sin_port));
}

bool CanListenAt(uint16_t port) {
  const auto fd = Bound(port);
  return fd.ok() && ::listen(fd->get(), 1) == 0;
}

bool IsListening(uint16_t port) {
  const base::Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in address = Loopback(port);
  return fd &&
         ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
}

std::string ListenerAt(uint16_t port) {
  std::string inode = ListeningInode("/proc/net/tcp", port);
  if (inode.empty()) inode = ListeningInode("/proc/net/tcp6", port);
  if (inode.empty()) return kSomebody;
  const std::string link = "socket:[" + inode + "]";
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string pid = entry.path().filename().string();
    if (pid.find_first_not_of("0123456789") != std::string::npos || !HasFile(entry.path(), link))
      continue;
    std::string name = base::ReadFile((entry.path() / "comm").string()).value_or("");
    while (!name.empty() && name.back() == '\n') name.pop_back();
    return fmt::format("{} (process {})", name.empty() ? kSomebody : name, pid);
  }
  return kSomebody;
}

}  // namespace mt::client
