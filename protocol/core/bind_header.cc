#include "bind_header.h"

#include <cstdint>
#include <limits>
#include <string_view>

#include "header/headers.h"
#include "views.h"

namespace nb = nanobind;

namespace wavefront {

namespace {

constexpr std::size_t kFrames = 4;

constexpr std::size_t kPositionBytes = 904, kOffsetBytes = 4, kMoveBytes = 2, kFloatBytes = 4,
                      kMostMoves = 256;

// So many positions no message has.
constexpr std::int64_t kMostPositions = 65536;

// Bytes of a header that is read here.
constexpr std::size_t kMostOfHeader = 4096;

using Bytes = std::span<const unsigned char>;

bool is_aligned(const Bytes& bytes, std::size_t alignment) {
  return reinterpret_cast<std::uintptr_t>(bytes.data()) % alignment == 0;
}

// ASCII, as the core leaves all else alone.
nb::str text_of(std::string_view text) {
  return nb::str(text.data(), text.size());
}

nb::object plain_evaluate(nb::sequence frames) {
  if (nb::len(frames) != kFrames) return nb::none();
  const Views views(frames);
  const auto bytes = views.bytes();
  if (bytes[0].size() > kMostOfHeader) return nb::none();
  const auto header = evaluate_header(bytes[0]);
  if (!header || header->count > kMostPositions) return nb::none();
  const auto count = static_cast<std::size_t>(header->count);
  if (bytes[1].size() != count * kPositionBytes || bytes[2].size() != (count + 1) * kOffsetBytes ||
      bytes[3].size() % kMoveBytes != 0 || bytes[3].size() > count * kMostMoves * kMoveBytes)
    return nb::none();
  if (!is_aligned(bytes[1], 8) || !is_aligned(bytes[2], kOffsetBytes) || !is_aligned(bytes[3], kMoveBytes))
    return nb::none();
  const nb::object deadline = header->deadline_ms ? nb::cast(*header->deadline_ms) : nb::none();
  return nb::make_tuple(header->id, header->count, text_of(header->priority), text_of(header->network),
                        deadline);
}

nb::object plain_result(nb::sequence frames) {
  if (nb::len(frames) != kFrames) return nb::none();
  const Views views(frames);
  const auto bytes = views.bytes();
  if (bytes[0].size() > kMostOfHeader) return nb::none();
  const auto header = result_header(bytes[0]);
  if (!header) return nb::none();
  const std::size_t count = bytes[3].size() / kFloatBytes;
  if (count > static_cast<std::size_t>(kMostPositions) || bytes[3].size() % kFloatBytes != 0 ||
      bytes[2].size() != 3 * bytes[3].size() || bytes[1].size() % kFloatBytes != 0 ||
      bytes[1].size() > count * kMostMoves * kFloatBytes)
    return nb::none();
  for (const Bytes& each : bytes.subspan(1))
    if (!is_aligned(each, kFloatBytes)) return nb::none();
  return nb::make_tuple(header->id, header->queue_ms, header->compute_ms, header->batch,
                        text_of(header->instance));
}

}  // namespace

void bind_header(nb::module_& module) {
  module.def("plain_evaluate", &plain_evaluate, nb::arg("frames"), "See protocol/_core.pyi.");
  module.def("plain_result", &plain_result, nb::arg("frames"), "See protocol/_core.pyi.");
}

}  // namespace wavefront
