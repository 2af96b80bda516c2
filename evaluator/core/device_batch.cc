// SPDX-License-Identifier: GPL-3.0-or-later
#include "device_batch.h"

#include <cstring>

namespace wavefront::device {

void join(const std::vector<Part>& parts, const InputBlock& block) {
  auto* const offsets = reinterpret_cast<std::uint32_t*>(block.memory + block.offsets_at);
  auto* const moves = reinterpret_cast<std::uint16_t*>(block.memory + block.moves_at);
  std::size_t position = 0;
  std::uint32_t move = 0;
  offsets[0] = 0;
  for (const Part& part : parts) {
    std::memcpy(block.memory + position * kPositionBytes, part.positions,
                part.position_count * kPositionBytes);
    std::memcpy(moves + move, part.moves, part.move_count * sizeof(*part.moves));
    for (std::size_t i = 1; i <= part.position_count; ++i)
      offsets[position + i] = move + part.move_offsets[i];
    position += part.position_count;
    move += static_cast<std::uint32_t>(part.move_count);
  }
  for (std::size_t i = position + 1; i <= block.capacity; ++i) offsets[i] = move;
}

int make(const Call& call) {
  using Word = std::uintptr_t;
  const auto& a = call.arguments;
  switch (call.argument_count) {
    case 1:
      return reinterpret_cast<int (*)(Word)>(call.function)(a[0]);
    case 2:
      return reinterpret_cast<int (*)(Word, Word)>(call.function)(a[0], a[1]);
    case 3:
      return reinterpret_cast<int (*)(Word, Word, Word)>(call.function)(a[0], a[1], a[2]);
    case 4:
      return reinterpret_cast<int (*)(Word, Word, Word, Word)>(call.function)(a[0], a[1], a[2], a[3]);
    default:
      return reinterpret_cast<int (*)(Word, Word, Word, Word, Word)>(call.function)(a[0], a[1], a[2], a[3],
                                                                                    a[4]);
  }
}

Failure submit(const Submission& submission, std::mutex& turn) {
  int number = 0;
  int status = 0;
  const auto make_all = [&](const std::vector<Call>& calls) {
    for (const Call& call : calls) {
      status = make(call);
      if (status != 0) return false;
      ++number;
    }
    return true;
  };
  bool good = make_all(submission.before);
  if (good) {
    const std::lock_guard<std::mutex> lock(turn);
    good = make_all(submission.in_turn);
  }
  if (good) good = make_all(submission.after);
  return good ? Failure{-1, 0} : Failure{number, status};
}

bool is_finite(const float* values, std::size_t count) {
  constexpr std::uint32_t kExponent = 0x7F800000;  // all bits set: infinite or NaN
  std::uint32_t bad = 0;
  for (std::size_t i = 0; i < count; ++i) {
    std::uint32_t bits;
    std::memcpy(&bits, values + i, sizeof bits);
    bad |= static_cast<std::uint32_t>((bits & kExponent) == kExponent);
  }
  return bad == 0;
}

bool take(const std::vector<Output>& outputs) {
  bool good = true;
  for (const Output& output : outputs) {
    std::memcpy(output.to, output.from, output.count * sizeof(float));
    good &= is_finite(output.to, output.count);
  }
  return good;
}

}  // namespace wavefront::device
