// SPDX-License-Identifier: GPL-3.0-or-later
// The common headers of an evaluate and of its result.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace wavefront::wire {

struct EvaluateHeader {
  std::int64_t id = 0;     // at least 1
  std::int64_t count = 0;  // at least 1
  std::string_view priority = "play";
  std::string_view network;
  std::optional<double> deadline_ms;
  std::optional<double> target_ms;
};

struct ResultHeader {
  std::int64_t id = 0;
  double queue_ms = 0;
  double compute_ms = 0;
  std::int64_t batch = 0;
  std::string_view instance;  // at most 64 bytes
  std::string_view network;   // content hash, at most 255 bytes; empty unless negotiated
};

// Return nullopt for other messages and for invalid or unusual headers; wire/codec.py distinguishes them.
std::optional<EvaluateHeader> evaluate_header(std::span<const unsigned char> data);
std::optional<ResultHeader> result_header(std::span<const unsigned char> data);

// Returns a header's bytes, the same as those of protocol/wire/codec.py. A result omits an empty instance or
// network.
std::vector<unsigned char> written(const EvaluateHeader& header);
std::vector<unsigned char> written(const ResultHeader& header);

}  // namespace wavefront::wire
