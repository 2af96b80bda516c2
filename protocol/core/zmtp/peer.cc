// SPDX-License-Identifier: GPL-3.0-or-later
#include "zmtp/peer.h"

#ifdef __linux__

#include <linux/tcp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>

namespace wavefront::wire {

namespace {

// Bytes of a client's greeting, HELLO and INITIATE.
constexpr std::uint64_t kMostReceived = 8192;

// Bytes that the ROUTER sends before it accepts a key: a greeting of 64, WELCOME of 170, and one for SYN.
// READY, which follows, is longer than the rest.
constexpr std::uint64_t kMostSent = 240;

}  // namespace

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

bool sends_too_much(int descriptor) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return false;
  return info.tcpi_bytes_acked <= kMostSent && info.tcpi_bytes_received > kMostReceived;
}

}  // namespace wavefront::wire

#endif
