// SPDX-License-Identifier: GPL-3.0-or-later
// The headers of an evaluate and of its result, if nothing is unusual about them.
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
};

struct ResultHeader {
  std::int64_t id = 0;
  double queue_ms = 0;
  double compute_ms = 0;
  std::int64_t batch = 0;
  std::string_view instance;  // at most 64 bytes
  std::string_view network;   // content hash, at most 255 bytes; empty unless negotiated
};

// Nothing for what is another message, not valid, or rare: protocol/codec.py says which.
std::optional<EvaluateHeader> evaluate_header(std::span<const unsigned char> data);
std::optional<ResultHeader> result_header(std::span<const unsigned char> data);

// A header's bytes, the same that protocol/codec.py makes of it. A result has no field for an
// instance or a network that is empty.
std::vector<unsigned char> written(const EvaluateHeader& header);
std::vector<unsigned char> written(const ResultHeader& header);

}  // namespace wavefront::wire
