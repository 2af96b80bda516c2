// SPDX-License-Identifier: GPL-3.0-or-later
#include "gate/peer.h"

#ifdef __linux__

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>

namespace wavefront::gate {

std::string address_of_peer(int descriptor) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  auto* const plain = reinterpret_cast<sockaddr*>(&address);
  if (getpeername(descriptor, plain, &size) != 0) return "";
  if (address.ss_family == AF_UNIX) {
    ucred peer{};
    socklen_t peer_size = sizeof peer;
    if (getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &peer, &peer_size) != 0) return "";
    return "localhost:" + std::to_string(peer.uid) + ":" + std::to_string(peer.gid) + ":" +
           std::to_string(peer.pid);
  }
  char host[NI_MAXHOST];
  if (getnameinfo(plain, size, host, sizeof host, nullptr, 0, NI_NUMERICHOST) != 0) return "";
  return host;
}

std::string source_of_peer(int descriptor, bool local) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (getpeername(descriptor, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "";
  if (address.ss_family == AF_INET) {
    in_addr number = reinterpret_cast<const sockaddr_in&>(address).sin_addr;
    return {reinterpret_cast<const char*>(&number), sizeof number};
  }
  if (address.ss_family == AF_INET6) {
    constexpr std::size_t kMappedAt = 12, kNetwork = 8;
    const in6_addr number = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
    const auto* const bytes = reinterpret_cast<const char*>(&number);
    if (IN6_IS_ADDR_V4MAPPED(&number)) return {bytes + kMappedAt, sizeof number - kMappedAt};
    // All link-local addresses are in one network, with one address per machine.
    return {bytes, IN6_IS_ADDR_LINKLOCAL(&number) ? sizeof number : kNetwork};
  }
  ucred peer{};
  socklen_t peer_size = sizeof peer;
  if (getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &peer, &peer_size) != 0) return "";
  return local ? "process " + std::to_string(peer.pid) : "user " + std::to_string(peer.uid);
}

std::string name_of_peer(int descriptor) {
  sockaddr_un address{};
  socklen_t size = sizeof address;
  if (getpeername(descriptor, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "";
  if (address.sun_family != AF_UNIX || size <= offsetof(sockaddr_un, sun_path)) return "";
  return {address.sun_path, size - offsetof(sockaddr_un, sun_path)};
}

}  // namespace wavefront::gate

#endif
