// SPDX-License-Identifier: GPL-3.0-or-later
#include "bind_header.h"

#include <cstdint>
#include <string_view>

#include "header/plain.h"
#include "views.h"

namespace nb = nanobind;

namespace wavefront::protocol {

using namespace wire;

namespace {

bool is_aligned(const Bytes& bytes, std::size_t alignment) {
  return reinterpret_cast<std::uintptr_t>(bytes.data()) % alignment == 0;
}

// Texts are ASCII: the core does not decode headers with other characters.
nb::str text_of(std::string_view text) {
  return nb::str(text.data(), text.size());
}

nb::object plain_evaluate_of(nb::sequence frames) {
  if (nb::len(frames) != kPlainFrames) return nb::none();
  const Views views(frames);
  const auto bytes = views.bytes();
  const auto header = plain_evaluate(bytes);
  if (!header) return nb::none();
  if (!is_aligned(bytes[1], 8) || !is_aligned(bytes[2], 4) || !is_aligned(bytes[3], 2)) return nb::none();
  const nb::object deadline = header->deadline_ms ? nb::cast(*header->deadline_ms) : nb::none();
  const nb::object target = header->target_ms ? nb::cast(*header->target_ms) : nb::none();
  return nb::make_tuple(header->id, header->count, text_of(header->priority), text_of(header->network),
                        deadline, target);
}

nb::object plain_result_of(nb::sequence frames) {
  if (nb::len(frames) != kPlainFrames) return nb::none();
  const Views views(frames);
  const auto bytes = views.bytes();
  const auto header = plain_result(bytes);
  if (!header) return nb::none();
  for (const Bytes& each : bytes.subspan(1))
    if (!is_aligned(each, 4)) return nb::none();
  return nb::make_tuple(header->id, header->queue_ms, header->compute_ms, header->batch,
                        text_of(header->instance), text_of(header->network));
}

}  // namespace

void bind_header(nb::module_& module) {
  module.def("plain_evaluate", &plain_evaluate_of, nb::arg("frames"),
             nb::sig("def plain_evaluate(frames: collections.abc.Sequence[_typeshed.ReadableBuffer]) -> "
                     "tuple[int, int, str, str, float | None, float | None] | None"),
             R"(Return id, count, class, network, deadline_ms and target_ms of an uncompressed `evaluate`.
Its arrays have the sizes that `count` requires and are aligned; their content is not checked. Return None
for any other message and for unusual headers, which the caller must decode itself.)");
  module.def("plain_result", &plain_result_of, nb::arg("frames"),
             nb::sig("def plain_result(frames: collections.abc.Sequence[_typeshed.ReadableBuffer]) -> "
                     "tuple[int, float, float, int, str, str] | None"),
             "Same for a `result`: id, queue_ms, compute_ms, batch, instance, network.");
}

}  // namespace wavefront::protocol
