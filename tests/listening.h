// SPDX-License-Identifier: GPL-3.0-or-later
// A socket to be connected to, for programs that do things at random (fuzzing.h) and speak with themselves.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <string>

#include "fuzzing.h"
#include "zmtp/descriptor.h"

namespace wavefront {

// Listens at an abstract name, which begins with a zero byte.
inline wire::Descriptor listening_at(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path, name.size());
  wire::Descriptor listener(socket(AF_UNIX, SOCK_STREAM, 0));
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  require(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size) == 0, "an address is free");
  require(listen(listener.get(), 8) == 0, "it can be listened at");
  return listener;
}

}  // namespace wavefront
