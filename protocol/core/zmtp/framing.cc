// SPDX-License-Identifier: GPL-3.0-or-later
#include "zmtp/framing.h"

#include <cstring>
#include <string_view>

namespace wavefront::wire {

std::optional<Ending> Greeting::read(unsigned char byte) {
  const std::size_t at = size_;
  bytes_[size_++] = byte;
  if (at == 0 && byte != 0xFF) return Ending::kForeign;
  if (at == kSignatureEnd && byte != 0x7F) return Ending::kForeign;
  if (at == kMajorAt && byte < 3) return Ending::kForeign;
  if (!is_complete()) return std::nullopt;
  const auto* const name = reinterpret_cast<const char*>(bytes_.data() + kMechanismAt);
  const std::string_view mechanism(name, strnlen(name, kMechanismSize));
  return mechanism == "NULL" ? std::nullopt : std::optional(Ending::kForeign);
}

bool FrameHead::read(unsigned char byte) {
  if (!begun_) {
    flags_ = byte;
    begun_ = true;
    left_ = (flags_ & kLong) != 0 ? 8 : 1;
    size_ = 0;
    return false;
  }
  size_ = size_ << 8 | byte;
  begun_ = --left_ > 0;
  return !begun_;
}

}  // namespace wavefront::wire
