// SPDX-License-Identifier: GPL-3.0-or-later
#include "bind_zmtp.h"

#include <nanobind/stl/optional.h>

#include <cstdint>

#include "zmtp/silent_connections.h"

#ifdef __linux__

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <iterator>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "views.h"
#include "zmtp/hub.h"
#include "zmtp/peer.h"
#include "zmtp/stream.h"

#endif

namespace nb = nanobind;

namespace wavefront::protocol {

using namespace wire;

namespace {

void bind_silent_connections(nb::module_& module) {
  nb::class_<SilentConnections>(
      module, "SilentConnections",
      "Connections that have not been admitted yet, by number. per_source: maximum of one source.")
      .def(nb::init<std::size_t>(), nb::arg("per_source"))
      .def(
          "add",
          [](SilentConnections& silent, std::uint64_t number, nb::bytes source) {
            silent.add(number, {source.c_str(), source.size()});
          },
          nb::arg("number"), nb::arg("source"), "Add a connection.")
      .def("remove", &SilentConnections::remove, nb::arg("number"),
           "Remove a connection; False if it is not here.")
      .def(
          "displaced_by",
          [](const SilentConnections& silent, nb::bytes source) {
            return silent.displaced_by({source.c_str(), source.size()});
          },
          nb::arg("source"), "Return the oldest connection of a source that may have no more.")
      .def("victim", &SilentConnections::victim, "Return the oldest connection of the source with the most.")
      .def("__len__", &SilentConnections::size);
}

}  // namespace

#ifdef __linux__

namespace {

using std::chrono::milliseconds;

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  Frame* const frame = nb::inst_ptr<Frame>(nb::handle(self));
  return PyBuffer_FillInfo(view, self, frame->bytes.get(), static_cast<Py_ssize_t>(frame->size), 1, flags);
}

PyType_Slot frame_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)}, {0, nullptr}};

nb::list list_of(Message message) {
  nb::list frames;
  for (Frame& frame : message) frames.append(nb::cast(std::move(frame)));
  return frames;
}

[[noreturn]] void raise_ended(const char* reason) {
  PyErr_SetString(PyExc_ConnectionError, reason);
  throw nb::python_error();
}

const char* name_of(Ending reason) {
  return kEndingNames[static_cast<std::size_t>(reason)];
}

nb::object receive(Stream& stream, int timeout_ms, int interrupt) {
  std::optional<Stream::Time> until;
  if (timeout_ms >= 0) until = std::chrono::steady_clock::now() + milliseconds(timeout_ms);
  while (true) {
    Stream::Found found;
    {
      const nb::gil_scoped_release released;
      found = stream.wait(until, interrupt);
    }
    switch (found) {
      case Stream::Found::kMessage:
        return list_of(stream.take());
      case Stream::Found::kEnd:
        raise_ended(name_of(stream.ending()));
      case Stream::Found::kNothing:
        return nb::none();
      case Stream::Found::kSignal:
        if (PyErr_CheckSignals() != 0) throw nb::python_error();
    }
  }
}

nb::object take(Hub& hub) {
  auto arrived = hub.take();
  if (!arrived) return nb::none();
  return nb::make_tuple(arrived->number, list_of(std::move(arrived->message)));
}

nb::list endings_of(Hub& hub) {
  nb::list endings;
  for (const Ended& ended : hub.endings())
    endings.append(nb::make_tuple(ended.address, name_of(ended.reason)));
  return endings;
}

nb::dict counts_of(Hub& hub) {
  nb::dict counts;
  const auto found = hub.counts();
  for (std::size_t i = 0; i < kEndings; ++i) counts[kEndingNames[i]] = found[i];
  return counts;
}

template <typename Make>
void make(Make construct) {
  try {
    construct();
  } catch (const std::system_error& error) {
    errno = error.code().value();
    PyErr_SetFromErrno(PyExc_OSError);
    throw nb::python_error();
  }
}

void bind_stream(nb::module_& module) {
  nb::class_<Stream>(
      module, "Stream",
      R"(A client's connection to a UNIX socket. One thread uses it, which reads and writes itself.

frame, message, parts: maximum bytes of a received frame, bytes of a received message, frames of a
message.
ConnectionError gives the reason of the end: "peer", "refused" (too many connections), "foreign" (not ZMTP
3 with NULL), "malformed", "frame", "message", "parts", "memory".)")
      .def(
          "__init__",
          [](Stream* stream, nb::bytes path, std::size_t frame, std::size_t message, std::size_t parts) {
            make([&] { new (stream) Stream({path.c_str(), path.size()}, {frame, message, parts}); });
          },
          nb::arg("path"), nb::kw_only(), nb::arg("frame"), nb::arg("message"), nb::arg("parts"),
          "Connect to `path`; an abstract name starts with a zero byte. Raises OSError if nobody listens.")
      .def("fileno", &Stream::descriptor,
           "Return a descriptor that is readable when `receive` may return or raise, unless `has_message`.")
      .def(
          "send",
          [](Stream& stream, nb::sequence frames) {
            const Views views(frames);
            return stream.send(views.bytes());
          },
          nb::arg("frames"),
          nb::sig("def send(self, frames: collections.abc.Sequence[_typeshed.ReadableBuffer]) -> bool"),
          R"(Send a message of 1 to 16 frames without waiting, and return False if the connection has ended.
Bytes that the kernel does not accept yet are copied.)")
      .def("receive", &receive, nb::arg("timeout_ms"), nb::arg("interrupt") = -1,
           nb::sig("def receive(self, timeout_ms: int, interrupt: int = -1) -> list[Frame] | None"),
           R"(Return the next message, or None after `timeout_ms` (negative: no limit) or once `interrupt` is
readable.

Raises ConnectionError once the connection has ended and all earlier messages were received.)")
      .def_prop_ro("has_message", &Stream::has_message,
                   "True if another message was received together with the previous one.")
      .def_prop_ro("was_ready", &Stream::was_ready, "True once the handshake has completed.")
      .def("close", &Stream::close, nb::call_guard<nb::gil_scoped_release>(),
           "End the connection. Idempotent.");
}

void bind_hub(nb::module_& module) {
  nb::class_<Hub>(
      module, "Hub",
      R"(All connections of a service's listening sockets. Only one thread may use `wait`, `take` and `ended`.

Any thread may call the other methods. frame, message, parts: limits as in Stream; a client that exceeds
one is disconnected. kept: maximum bytes of unread answers per client before it is disconnected.
connections: maximum number at local addresses, and at the others. A new connection replaces the oldest one
that has sent no message, of the source with the most, or is refused if all have sent one. per_source:
maximum connections without a message of one source, not for local addresses. buffered: maximum bytes of all
clients; beyond it the client with the most is disconnected. handshake_ms: time limit.)")
      .def(
          "__init__",
          [](Hub* hub, std::size_t frame, std::size_t message, std::size_t parts, std::size_t kept,
             std::size_t connections, std::size_t per_source, std::size_t buffered, int handshake_ms) {
            make([&] {
              new (hub) Hub({{frame, message, parts},
                             kept,
                             connections,
                             per_source,
                             buffered,
                             milliseconds(handshake_ms)});
            });
          },
          nb::kw_only(), nb::arg("frame"), nb::arg("message"), nb::arg("parts"), nb::arg("kept"),
          nb::arg("connections"), nb::arg("per_source") = HubLimits{}.per_source,
          nb::arg("buffered") = HubLimits{}.buffered, nb::arg("handshake_ms") = HubLimits{}.handshake.count())
      .def(
          "listen",
          [](Hub& hub, int listener, bool local) { make([&] { hub.listen(Descriptor(listener), local); }); },
          nb::arg("listener"), nb::kw_only(), nb::arg("local") = true,
          "Take ownership of a listening socket, given by its descriptor. local: only the service's user can "
          "connect.")
      .def("stop_listening", &Hub::stop_listening, "Accept no more connections; existing ones stay open.")
      .def(
          "watch", [](Hub& hub, int descriptor) { make([&] { hub.watch(descriptor); }); },
          nb::arg("descriptor"), "Make `wait` return when this descriptor is readable, too.")
      .def("wait", &Hub::wait, nb::arg("timeout_ms"), nb::call_guard<nb::gil_scoped_release>(),
           R"(Wait for messages, ended connections or a watched descriptor, and return True if the latter is
readable.

Returns at once if there are messages to take.)")
      .def("take", &take, nb::sig("def take(self) -> tuple[int, list[Frame]] | None"),
           "Return the next message and the number of its connection. Numbers are never reused.")
      .def_prop_ro("has_message", &Hub::has_message,
                   "True if there are messages for `take` or ended connections to record.")
      .def("ended", &Hub::ended,
           "Return the connections that ended since the last call and whose messages have all been taken.")
      .def_prop_ro("has_events", &Hub::has_events, "True if `ended` or `endings` returns something.")
      .def("address_of", &Hub::address_of, nb::arg("number"),
           "Return the peer as a number or localhost:UID:GID:PID, empty if unknown; None for an ended "
           "connection.")
      .def("is_local", &Hub::is_local, nb::arg("number"),
           "Return True if a connection was accepted at a local address.")
      .def("unread", &Hub::unread, nb::arg("number"),
           "Return the bytes of answers that a client has not read.")
      .def_prop_ro("buffered", &Hub::buffered, "Bytes that all connections keep.")
      .def("counts", &counts_of, "Return the number of closed and refused connections by reason.")
      .def(
          "send",
          [](Hub& hub, std::uint64_t number, nb::sequence frames) {
            const Views views(frames);
            return hub.send(number, views.bytes());
          },
          nb::arg("number"), nb::arg("frames"),
          nb::sig("def send(self, number: int, frames: collections.abc.Sequence[_typeshed.ReadableBuffer]) "
                  "-> bool"),
          R"(Send a message of 1 to 16 frames without waiting.
Return False if the client has gone, or is disconnected because it left too much unread.)")
      .def("hang_up", &Hub::hang_up, nb::arg("number"), "End a connection.")
      .def("__len__", &Hub::size, "Return the number of connections.")
      .def("endings", &endings_of, nb::sig("def endings(self) -> list[tuple[str, str]]"),
           R"(Return address and reason of some connections closed since the last call, also "unread".)")
      .def(
          "close", [](Hub& hub, int linger_ms) { hub.close(milliseconds(linger_ms)); }, nb::arg("linger_ms"),
          nb::call_guard<nb::gil_scoped_release>(),
          "End all connections once the kernel has all answers, or after `linger_ms`.");
}

}  // namespace

void bind_zmtp(nb::module_& module) {
  module.def(
      "source_of_peer",
      [](int descriptor) {
        const std::string source = source_of_peer(descriptor, false);
        return nb::bytes(source.data(), source.size());
      },
      nb::arg("descriptor"),
      "Return what counts as one source of connections: an IPv4 address, the first 64 bits of an IPv6 "
      "address, "
      "or a local user. Empty if unknown.");
  module.def(
      "sending_too_much",
      [](const std::vector<int>& descriptors) {
        std::vector<int> found;
        std::copy_if(descriptors.begin(), descriptors.end(), std::back_inserter(found), sends_too_much);
        return found;
      },
      nb::arg("descriptors"),
      "Return the tcp connections whose peers send more than CURVE's handshake before a key is accepted.");
  bind_silent_connections(module);
  nb::class_<Frame>(module, "Frame", nb::type_slots(frame_slots),
                    nb::sig("class Frame(typing_extensions.Buffer)"),
                    "One frame of a received message: a read-only buffer, aligned for any number type.")
      .def("__len__", [](const Frame& frame) { return frame.size; });
  bind_stream(module);
  bind_hub(module);
}

#else

void bind_zmtp(nb::module_& module) {
  bind_silent_connections(module);
}

#endif

}  // namespace wavefront::protocol
