// SPDX-License-Identifier: GPL-3.0-or-later
// The device loop: evaluations of one client, from its connection to a device and back, without the GIL.
#pragma once

#ifdef __linux__

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "device_loop/program.h"
#include "header/headers.h"
#include "zmtp/hub.h"

namespace wavefront::device {

// Reason for `run` to return.
enum class Stop : std::uint8_t {
  kOther,       // the hub has something that the loop does not handle
  kWoken,       // the descriptor watched by the hub is readable
  kTime,        // `until_ms` has passed
  kUnprepared,  // there is no program for the next request
  kCrowded,     // more requests wait than may be in flight, so they should be merged
  kFailed,      // a driver call has failed
  kLate,        // a batch takes too long
  kNotFinite,   // a result is infinite or NaN
  kTaken,       // another thread has given up the batches in flight and owns the hub now
};

// An answered batch. Times are milliseconds of the steady clock.
struct Answered {
  double arrived_ms;
  double launched_ms;
  double ended_ms;
  std::uint32_t positions;
  std::uint32_t rank;  // of its class
};

// Serves one connection of a hub. Each plain evaluate goes to the device at once, even while earlier ones
// run. The client gets each answer as soon as it is ready. Other messages stay in the hub until all batches
// in flight are answered.
//
// One thread is in `run`. If a driver call does not return, another thread may call `take_over` and use the
// hub.
class DeviceLoop {
 public:
  // names: of the network in requests, including "" if it is the default. classes: by rank. instance: random
  // name of the service's run. network: named in results; "" for none. slots: maximum batches in flight.
  // activate: makes the device current for the calling thread.
  DeviceLoop(Hub& hub, std::vector<std::string> names, std::vector<std::string> classes, std::string instance,
             std::string network, std::size_t slots, const Call& activate);
  DeviceLoop(const DeviceLoop&) = delete;
  DeviceLoop& operator=(const DeviceLoop&) = delete;

  // Sets the program of a slot for a batch size, if the moves fit. Not while `run` runs.
  void prepare(std::size_t slot, std::size_t positions, Program program);

  // Serves a connection until `until_ms` of the steady clock or another reason to stop. After kFailed, kLate
  // and kNotFinite the batches in flight must be given up; otherwise none is in flight. late_ms: time limit
  // of a batch.
  Stop run(std::uint64_t connection, double until_ms, double late_ms);

  // Positions and moves of the request without a program.
  std::pair<std::size_t, std::size_t> unprepared() const { return unprepared_; }

  // Batches answered since the last call.
  std::vector<Answered> answered();

  // Gives up the requests in flight and returns them, oldest first; `run` cannot be used any more. Not while
  // `run` runs.
  std::vector<Arrived> give_up();

  // The same from another thread, if `run` has been inside the driver for `stuck_ms`; else nothing.
  std::optional<std::vector<Arrived>> take_over(double stuck_ms);

  // Waits until the device has finished the given-up batches, so that their memory is free; false if it has
  // failed.
  bool settle();

 private:
  struct Flight {
    Arrived request;
    EvaluateHeader header;
    std::size_t slot;
    const Program* program;
    std::size_t moves;
    Answered times;
  };
  struct Slot {
    std::map<std::size_t, Program> programs;  // by batch size
    bool free = true;
  };
  struct Request {
    EvaluateHeader header;
    Part part;
    std::uint32_t rank;
  };

  std::optional<Request> plain(const Message& message) const;
  bool is_in_flight(std::int64_t id) const;
  std::optional<Stop> begin();
  std::optional<Stop> finish();
  bool answer(const Flight& flight);
  std::vector<Arrived> taken_flights();
  int drive(const Call& call);

  Hub& hub_;
  const std::vector<std::string> names_;
  const std::vector<std::string> classes_;
  const std::string instance_;
  const std::string network_;
  const Call activate_;
  std::vector<Slot> slots_;

  std::mutex mutex_;  // for the members below; held by `run` except inside the driver
  std::uint64_t connection_ = 0;
  double late_ms_ = 0;
  bool taken_ = false;
  bool woken_ = false;
  std::deque<Flight> flights_;
  std::vector<const Program*> given_up_;
  std::vector<Answered> answered_;
  std::pair<std::size_t, std::size_t> unprepared_{};
  double inside_since_ms_ = 0;  // start of the current driver call; 0 outside
};

}  // namespace wavefront::device

#endif
