// SPDX-License-Identifier: GPL-3.0-or-later
// Streams, events and captures: queues of operations that run when something waits for them.
#include <algorithm>

#include "runtime.h"

namespace standin {

namespace {

// Whether the oldest operation of a stream may run.
bool ready(const Stream& stream) {
  return !stream.queue.empty() && (!stream.queue.front().waits_for || stream.queue.front().waits_for->done);
}

// Runs the oldest operation of a stream. The lock is given up meanwhile.
void run_front(Lock& lock, Stream& stream) {
  Runtime& r = runtime();
  r.running = true;
  Operation operation = std::move(stream.queue.front());
  if (operation.body && !r.devices[stream.device].fault) {
    lock.unlock();
    const int error = operation.body();
    lock.lock();
    if (error) r.devices[stream.device].fault = error;
  }
  stream.queue.pop_front();
  stream.completed++;
  if (operation.marks) {
    operation.marks->done = true;
    operation.marks->milliseconds = now_ms();
  }
  r.running = false;
  r.changed.notify_all();
}

Stream* random_ready_stream() {
  std::vector<Stream*> able;
  for (Stream& stream : runtime().streams)
    if (ready(stream)) able.push_back(&stream);
  return able.empty() ? nullptr : able[runtime().random() % able.size()];
}

// Of the streams that must get on for one to come to a ticket, the one whose next operation was queued last:
// nothing but events keeps it from running first.
Stream* needed(Stream* stream, uint64_t ticket) {
  std::map<Stream*, uint64_t> until{{stream, ticket}};
  std::vector<Stream*> unseen{stream};
  while (!unseen.empty()) {
    Stream* next = unseen.back();
    unseen.pop_back();
    for (uint64_t i = 0; next->completed + i < until[next]; i++) {
      const MarkerRef& marker = next->queue[i].waits_for;
      if (!marker || marker->done || until[marker->stream] >= marker->ticket) continue;
      until[marker->stream] = marker->ticket;
      unseen.push_back(marker->stream);
    }
  }
  Stream* newest = nullptr;
  for (const auto& [each, last] : until)
    if (each->completed < last && ready(*each) &&
        (!newest || each->queue.front().number > newest->queue.front().number))
      newest = each;
  return newest;
}

// Runs what the order allows to run without anybody waiting.
void run_some(Lock& lock) {
  Runtime& r = runtime();
  while (r.order != Runtime::Order::LAZY && !r.held && !r.running) {
    if (r.order == Runtime::Order::RANDOM && r.random() % 2) return;
    Stream* stream = random_ready_stream();
    if (!stream) return;
    run_front(lock, *stream);
  }
}

Event* find_event(Call& call, void* handle, int& error) {
  Event* event = find_handle(runtime().events, handle);
  if (!event || !event->alive) {
    error = call.misuse(INVALID_HANDLE, event ? "an event that was destroyed" : "not an event");
    return nullptr;
  }
  return event;
}

void end_capture(Capture& capture) {
  for (const auto& [stream, nodes] : capture.ends) stream->capture = nullptr;
  capture.origin = nullptr;
}

}  // namespace

Stream* new_stream(int device) {
  Runtime& r = runtime();
  Stream stream{};
  stream.device = device;
  stream.number = (int)r.streams.size();
  r.streams.push_back(stream);
  return &r.streams.back();
}

Stream* find_stream(Call& call, void* handle, int& error) {
  Runtime& r = runtime();
  if (!handle) return r.devices[current_device()].default_stream;
  Stream* stream = find_handle(r.streams, handle);
  if (!stream || !stream->alive) {
    error = call.misuse(INVALID_HANDLE, stream ? "a stream that was destroyed" : "not a stream");
    return nullptr;
  }
  if (stream->device != current_device()) {
    error = call.misuse(INVALID_HANDLE, "a stream of device " + std::to_string(stream->device) +
                                            " while the thread uses " + std::to_string(current_device()));
    return nullptr;
  }
  return stream;
}

void queue(Call& call, Stream* stream, Operation operation, const std::string& what) {
  Runtime& r = runtime();
  if (Capture* capture = stream->capture) {
    std::set<int>& ends = capture->ends[stream];
    if (operation.body) {
      capture->nodes.push_back({operation.body, ends});
      ends = {(int)capture->nodes.size() - 1};
    }
    return;
  }
  operation.number = ++r.operations;
  stream->queue.push_back(std::move(operation));
  stream->queued++;
  r.trace.push_back(std::to_string(stream->number) + " " + what);
  run_some(call.lock());
}

int finish(Lock& lock, Stream* stream, uint64_t ticket) {
  Runtime& r = runtime();
  r.waiting++;
  r.changed.notify_all();
  while (stream->completed < ticket) {
    if (r.held || r.running) {
      r.changed.wait(lock);
      continue;
    }
    run_some(lock);
    if (stream->completed < ticket && !r.held && !r.running) run_front(lock, *needed(stream, ticket));
  }
  r.waiting--;
  return r.devices[stream->device].fault;
}

int finish_device(Lock& lock, int device) {
  int error = SUCCESS;
  for (Stream& stream : runtime().streams)
    if (stream.device == device && stream.alive) error = finish(lock, &stream, stream.queued);
  return error;
}

}  // namespace standin

using namespace standin;

// --- streams

EXPORT int hipStreamCreateWithFlags(void** handle, unsigned) {
  HIP_CALL("hipStreamCreateWithFlags");
  *handle = new_stream(current_device());
  return SUCCESS;
}

EXPORT int hipStreamCreate(void** handle) {
  return hipStreamCreateWithFlags(handle, 0);
}

EXPORT int hipStreamDestroy(void* handle) {
  HIP_CALL("hipStreamDestroy", false);
  int error = SUCCESS;
  Stream* stream = find_stream(call, handle, error);
  if (!stream) return error;
  if (!handle) return call.misuse(INVALID_HANDLE, "the default stream");
  if (stream->capture) return call.misuse(INVALID_HANDLE, "a stream that is capturing");
  finish(call.lock(), stream, stream->queued);
  stream->alive = false;
  return SUCCESS;
}

EXPORT int hipStreamSynchronize(void* handle) {
  HIP_CALL("hipStreamSynchronize");
  int error = SUCCESS;
  Stream* stream = find_stream(call, handle, error);
  if (!stream) return error;
  if ((error = call.refuse_while_capturing())) return error;
  return finish(call.lock(), stream, stream->queued);
}

EXPORT int hipStreamQuery(void* handle) {
  HIP_CALL("hipStreamQuery");
  int error = SUCCESS;
  Stream* stream = find_stream(call, handle, error);
  if (!stream) return error;
  return stream->completed == stream->queued ? SUCCESS : NOT_READY;
}

EXPORT int hipDeviceSynchronize() {
  HIP_CALL("hipDeviceSynchronize");
  if (const int error = call.refuse_while_capturing()) return error;
  return finish_device(call.lock(), current_device());
}

EXPORT int hipStreamWaitEvent(void* stream_handle, void* event_handle, unsigned) {
  HIP_CALL("hipStreamWaitEvent");
  int error = SUCCESS;
  Stream* stream = find_stream(call, stream_handle, error);
  Event* event = stream ? find_event(call, event_handle, error) : nullptr;
  if (!event) return error;
  if (event->capture) {
    // The stream takes part in the capture from here on.
    if (!event->capture->origin) return call.misuse(INVALID_VALUE, "an event of a capture that has ended");
    if (stream->capture && stream->capture != event->capture)
      return call.misuse(INVALID_VALUE, "joins two captures");
    stream->capture = event->capture;
    event->capture->ends[stream].insert(event->captured_after.begin(), event->captured_after.end());
    return SUCCESS;
  }
  if (!event->recorded) return call.misuse(SUCCESS, "an event that was never recorded: waits for nothing");
  if (stream->capture) return call.misuse(INVALID_VALUE, "waits in a capture for what was queued before it");
  Operation operation;
  operation.waits_for = event->recorded;
  queue(call, stream, operation, "wait " + std::to_string(event->recorded->stream->number));
  return SUCCESS;
}

// Runs a function of the host in a stream's order; what stands in for a library's kernels uses it.
EXPORT int hipLaunchHostFunc(void* handle, void (*function)(void*), void* data) {
  HIP_CALL("hipLaunchHostFunc");
  int error = SUCCESS;
  Stream* stream = find_stream(call, handle, error);
  if (!stream) return error;
  Operation operation;
  operation.body = [=] {
    function(data);
    return (int)SUCCESS;
  };
  queue(call, stream, operation, "host function");
  return SUCCESS;
}

// --- events

EXPORT int hipEventCreateWithFlags(void** handle, unsigned flags) {
  HIP_CALL("hipEventCreateWithFlags");
  constexpr unsigned DISABLE_TIMING = 2;
  runtime().events.push_back(Event{.device = current_device(), .timing = !(flags & DISABLE_TIMING)});
  *handle = &runtime().events.back();
  return SUCCESS;
}

EXPORT int hipEventCreate(void** handle) {
  return hipEventCreateWithFlags(handle, 0);
}

EXPORT int hipEventDestroy(void* handle) {
  HIP_CALL("hipEventDestroy", false);
  int error = SUCCESS;
  Event* event = find_event(call, handle, error);
  if (!event) return error;
  event->alive = false;
  return SUCCESS;
}

EXPORT int hipEventRecord(void* event_handle, void* stream_handle) {
  HIP_CALL("hipEventRecord");
  int error = SUCCESS;
  Stream* stream = find_stream(call, stream_handle, error);
  Event* event = stream ? find_event(call, event_handle, error) : nullptr;
  if (!event) return error;
  if (event->device != stream->device) return call.misuse(INVALID_HANDLE, "event and stream of two devices");
  event->capture = stream->capture;
  event->recorded = nullptr;
  event->asked = false;
  if (stream->capture) {
    event->captured_after = stream->capture->ends[stream];
    return SUCCESS;
  }
  event->recorded = std::make_shared<Marker>(Marker{stream, stream->queued + 1});
  Operation operation;
  operation.marks = event->recorded;
  queue(call, stream, operation, "record");
  return SUCCESS;
}

EXPORT int hipEventSynchronize(void* handle) {
  HIP_CALL("hipEventSynchronize");
  int error = SUCCESS;
  Event* event = find_event(call, handle, error);
  if (!event) return error;
  if (event->capture) return call.misuse(CAPTURED_EVENT, "an event of a capture");
  if (!event->recorded) return call.misuse(SUCCESS, "an event that was never recorded: waits for nothing");
  const MarkerRef marker = event->recorded;
  return finish(call.lock(), marker->stream, marker->ticket);
}

EXPORT int hipEventQuery(void* handle) {
  HIP_CALL("hipEventQuery");
  int error = SUCCESS;
  Event* event = find_event(call, handle, error);
  if (!event) return error;
  if (!event->recorded || event->recorded->done) return SUCCESS;
  // Nothing runs between two calls here, so a second query counts as a wait.
  if (!event->asked) {
    event->asked = true;
    return NOT_READY;
  }
  const MarkerRef marker = event->recorded;
  return finish(call.lock(), marker->stream, marker->ticket);
}

EXPORT int hipEventElapsedTime(float* milliseconds, void* start_handle, void* end_handle) {
  HIP_CALL("hipEventElapsedTime");
  int error = SUCCESS;
  Event* start = find_event(call, start_handle, error);
  Event* end = start ? find_event(call, end_handle, error) : nullptr;
  if (!end) return error;
  if (!start->timing || !end->timing) return call.misuse(INVALID_HANDLE, "an event made without timing");
  if (!start->recorded || !end->recorded)
    return call.misuse(INVALID_HANDLE, "an event that was never recorded");
  if (!start->recorded->done || !end->recorded->done)
    return call.misuse(NOT_READY, "nobody waited for the event");
  *milliseconds = (float)(end->recorded->milliseconds - start->recorded->milliseconds);
  return SUCCESS;
}

// --- captures

EXPORT int hipStreamBeginCapture(void* handle, int) {
  HIP_CALL("hipStreamBeginCapture");
  int error = SUCCESS;
  Stream* stream = find_stream(call, handle, error);
  if (!stream) return error;
  if (!handle) return call.misuse(CAPTURE_UNSUPPORTED, "the default stream cannot be captured");
  if (stream->capture) return call.misuse(ILLEGAL_STATE, "the stream is being captured already");
  runtime().captures.push_back(Capture{.origin = stream, .thread = std::this_thread::get_id()});
  stream->capture = &runtime().captures.back();
  stream->capture->ends[stream];
  return SUCCESS;
}

EXPORT int hipStreamIsCapturing(void* handle, int* status) {
  HIP_CALL("hipStreamIsCapturing");
  int error = SUCCESS;
  const Stream* stream = find_stream(call, handle, error);
  if (stream) *status = stream->capture != nullptr;
  return error;
}

EXPORT int hipStreamEndCapture(void* handle, void** graph) {
  Call call("hipStreamEndCapture");
  *graph = nullptr;
  int error = SUCCESS;
  Stream* stream = find_stream(call, handle, error);
  if (!stream) return error;
  Capture* capture = stream->capture;
  if (!capture) return call.misuse(ILLEGAL_STATE, "the stream is not being captured");
  if (capture->origin != stream)
    return call.misuse(CAPTURE_UNMATCHED, "not the stream that began the capture");
  if (capture->thread != std::this_thread::get_id())
    return call.misuse(CAPTURE_WRONG_THREAD, "another thread began the capture");
  // Whatever was captured must come before the end of the stream that began.
  std::set<int> joined = capture->ends[stream];
  for (int node = (int)capture->nodes.size() - 1; node >= 0; node--)
    if (joined.count(node))
      joined.insert(capture->nodes[node].after.begin(), capture->nodes[node].after.end());
  const bool all_joined = joined.size() == capture->nodes.size();
  const bool broken = capture->broken;
  end_capture(*capture);
  if (const int failed = call.error()) return failed;
  if (broken) return CAPTURE_INVALIDATED;
  if (!all_joined) return call.misuse(CAPTURE_UNJOINED, "a stream that takes part was not joined");
  runtime().graphs.push_back(Graph{.nodes = capture->nodes, .device = stream->device});
  *graph = &runtime().graphs.back();
  return SUCCESS;
}
