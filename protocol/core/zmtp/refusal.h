// SPDX-License-Identifier: GPL-3.0-or-later
// The answer to a client when a service has too many connections.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace wavefront::wire {

// Start of the command ERROR; the reason's length and the reason follow.
inline constexpr std::string_view kErrorCommand("\5ERROR");

// "Temporary error" of ZAP (RFC 27). libzmq reports a reason of this form to a client's monitor as the value
// of
// HANDSHAKE_FAILED_AUTH, and discards other reasons.
inline constexpr std::string_view kTooManyConnections("300");

// Returns the rest of a ZMTP 3.1 greeting and the command ERROR.
// greeted: bytes of the greeting sent before, at most 64.
inline std::string refusal(std::size_t greeted) {
  constexpr std::size_t kGreeting = 64, kMechanism = 12;
  std::string text(kGreeting, '\0');
  text[0] = '\xFF';
  text[9] = '\x7F';
  text[10] = 3;
  text[11] = 1;
  text.replace(kMechanism, 4, "NULL");
  text.erase(0, greeted);
  text += '\4';
  text += static_cast<char>(kErrorCommand.size() + 1 + kTooManyConnections.size());
  text += kErrorCommand;
  text += static_cast<char>(kTooManyConnections.size());
  text += kTooManyConnections;
  return text;
}

}  // namespace wavefront::wire
