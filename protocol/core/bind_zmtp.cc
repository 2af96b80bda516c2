// SPDX-License-Identifier: GPL-3.0-or-later
#include "bind_zmtp.h"

#include <nanobind/stl/optional.h>

#include <cstdint>

#include "zmtp/strangers.h"

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

void bind_strangers(nb::module_& module) {
  nb::class_<Strangers>(module, "Strangers", "See protocol/_core.pyi.")
      .def(nb::init<std::size_t>(), nb::arg("per_source"))
      .def(
          "add",
          [](Strangers& strangers, std::uint64_t number, nb::bytes source) {
            strangers.add(number, {source.c_str(), source.size()});
          },
          nb::arg("number"), nb::arg("source"))
      .def("remove", &Strangers::remove, nb::arg("number"))
      .def(
          "displaced_by",
          [](const Strangers& strangers, nb::bytes source) {
            return strangers.displaced_by({source.c_str(), source.size()});
          },
          nb::arg("source"))
      .def("victim", &Strangers::victim)
      .def("__len__", &Strangers::size);
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

nb::list news_of(Hub& hub) {
  nb::list news;
  for (const Ended& ended : hub.news()) news.append(nb::make_tuple(ended.address, name_of(ended.reason)));
  return news;
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
  nb::class_<Stream>(module, "Stream", "See protocol/_core.pyi.")
      .def(
          "__init__",
          [](Stream* stream, nb::bytes path, std::size_t frame, std::size_t message, std::size_t parts) {
            make([&] { new (stream) Stream({path.c_str(), path.size()}, {frame, message, parts}); });
          },
          nb::arg("path"), nb::kw_only(), nb::arg("frame"), nb::arg("message"), nb::arg("parts"))
      .def("fileno", &Stream::descriptor)
      .def(
          "send",
          [](Stream& stream, nb::sequence frames) {
            const Views views(frames);
            return stream.send(views.bytes());
          },
          nb::arg("frames"))
      .def("receive", &receive, nb::arg("timeout_ms"), nb::arg("interrupt") = -1)
      .def_prop_ro("has_message", &Stream::has_message)
      .def_prop_ro("was_ready", &Stream::was_ready)
      .def("close", &Stream::close, nb::call_guard<nb::gil_scoped_release>());
}

void bind_hub(nb::module_& module) {
  nb::class_<Hub>(module, "Hub", "See protocol/_core.pyi.")
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
          nb::arg("listener"), nb::kw_only(), nb::arg("local") = true)
      .def("stop_listening", &Hub::stop_listening)
      .def(
          "watch", [](Hub& hub, int descriptor) { make([&] { hub.watch(descriptor); }); },
          nb::arg("descriptor"))
      .def("wait", &Hub::wait, nb::arg("timeout_ms"), nb::call_guard<nb::gil_scoped_release>())
      .def("take", &take)
      .def_prop_ro("has_message", &Hub::has_message)
      .def("ended", &Hub::ended)
      .def_prop_ro("has_news", &Hub::has_news)
      .def("address_of", &Hub::address_of, nb::arg("number"))
      .def("is_local", &Hub::is_local, nb::arg("number"))
      .def("unread", &Hub::unread, nb::arg("number"))
      .def_prop_ro("buffered", &Hub::buffered)
      .def("counts", &counts_of)
      .def(
          "send",
          [](Hub& hub, std::uint64_t number, nb::sequence frames) {
            const Views views(frames);
            return hub.send(number, views.bytes());
          },
          nb::arg("number"), nb::arg("frames"))
      .def("hang_up", &Hub::hang_up, nb::arg("number"))
      .def("__len__", &Hub::size)
      .def("news", &news_of)
      .def(
          "close", [](Hub& hub, int linger_ms) { hub.close(milliseconds(linger_ms)); }, nb::arg("linger_ms"),
          nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace

void bind_zmtp(nb::module_& module) {
  module.def(
      "source_of_peer",
      [](int descriptor) {
        const std::string source = source_of_peer(descriptor, false);
        return nb::bytes(source.data(), source.size());
      },
      nb::arg("descriptor"), "See protocol/_core.pyi.");
  module.def(
      "sending_too_much",
      [](const std::vector<int>& descriptors) {
        std::vector<int> found;
        std::copy_if(descriptors.begin(), descriptors.end(), std::back_inserter(found), sends_too_much);
        return found;
      },
      nb::arg("descriptors"), "See protocol/_core.pyi.");
  bind_strangers(module);
  nb::class_<Frame>(module, "Frame", nb::type_slots(frame_slots), "See protocol/_core.pyi.")
      .def("__len__", [](const Frame& frame) { return frame.size; });
  bind_stream(module);
  bind_hub(module);
}

#else

void bind_zmtp(nb::module_& module) {
  bind_strangers(module);
}

#endif

}  // namespace wavefront::protocol
