// SPDX-License-Identifier: GPL-3.0-or-later
// One client's evaluations, from its connection to a device and back, without the Python interpreter.
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

// Why `run` has returned.
enum class Stop : std::uint8_t {
  kOther,       // the hub has something for somebody else to look at
  kWoken,       // what the hub watches is readable
  kTime,        // it is time
  kUnprepared,  // there is no program for the request that comes next
  kCrowded,     // more requests are waiting than may be in flight: they had better be merged
  kFailed,      // a call of the driver has failed
  kLate,        // the device takes too long
  kNotFinite,   // the device has given what is no number
  kTaken,       // another thread has given up what was in flight; the hub is no longer this thread's
};

// A batch that was answered. Times are milliseconds of the steady clock.
struct Answered {
  double arrived_ms;
  double launched_ms;
  double ended_ms;
  std::uint32_t positions;
  std::uint32_t rank;  // of its class
};

// Serves one connection of a hub: each plain evaluate goes to the device as soon as it is there, while the
// device may have the ones before, and each answer to the client as soon as the device has it. Whatever is
// not plain is left in the hub, and found there once all that was in flight has been answered.
//
// One thread is in `run`. A driver that does not return holds that thread up; any other may then `take_over`
// and go on with the hub.
class DeviceLoop {
 public:
  // names: by which requests name the network, among them "" for the one that they get without a name.
  // classes: by rank. instance: names the run of the service. network: what results name as theirs; "" if
  // they name none. slots: batches that may be in flight. activate: makes the device the calling thread's.
  DeviceLoop(Hub& hub, std::vector<std::string> names, std::vector<std::string> classes, std::string instance,
             std::string network, std::size_t slots, const Call& activate);
  DeviceLoop(const DeviceLoop&) = delete;
  DeviceLoop& operator=(const DeviceLoop&) = delete;

  // Has batches of so many positions run by this program in a slot, if their moves fit it. Not while `run`
  // runs.
  void prepare(std::size_t slot, std::size_t positions, Program program);

  // Serves a connection until `until_ms` of the steady clock or until there is a reason to stop. After
  // kFailed, kLate and kNotFinite what is in flight is to be given up, after the others nothing is in flight.
  // late_ms: so long a device may take for a batch.
  Stop run(std::uint64_t connection, double until_ms, double late_ms);

  // The positions of the request for which there is no program, and its moves.
  std::pair<std::size_t, std::size_t> unprepared() const { return unprepared_; }

  // What has been answered since the last call.
  std::vector<Answered> answered();

  // The requests in flight, oldest first; nobody answers them now, and `run` serves nothing any more. Not
  // while `run` runs.
  std::vector<Arrived> give_up();

  // The same from another thread, if the one in `run` has been inside of the driver for so long; else
  // nothing.
  std::optional<std::vector<Arrived>> take_over(double stuck_ms);

  // Waits until the device has done with what was given up, so that its memory can be used again; false if it
  // has failed.
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
    std::map<std::size_t, Program> programs;  // by positions
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

  std::mutex mutex_;  // of what follows; held by `run` but while it is inside of the driver
  std::uint64_t connection_ = 0;
  double late_ms_ = 0;
  bool taken_ = false;
  bool woken_ = false;
  std::deque<Flight> flights_;
  std::vector<const Program*> given_up_;
  std::vector<Answered> answered_;
  std::pair<std::size_t, std::size_t> unprepared_{};
  double inside_since_ms_ = 0;  // of the driver; 0 outside
};

}  // namespace wavefront::device

#endif
