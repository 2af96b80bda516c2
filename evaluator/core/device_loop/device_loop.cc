// SPDX-License-Identifier: GPL-3.0-or-later
#include "device_loop/device_loop.h"

#ifdef __linux__

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <span>
#include <thread>
#include <utility>

#include "header/plain.h"
#include "request.h"

namespace wavefront::device {

namespace {

// Time in a batch after which the device is polled only every kPause, instead of busy-waiting.
constexpr double kSpinMs = 4;
constexpr std::chrono::microseconds kPause{50};

// Polling interval for batches that were given up.
constexpr std::chrono::milliseconds kSettling{1};

double now_ms() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::milli>(now).count();
}

template <typename T>
const T* as(const Frame& frame) {
  return reinterpret_cast<const T*>(frame.bytes.get());
}

}  // namespace

DeviceLoop::DeviceLoop(Hub& hub, std::vector<std::string> names, std::vector<std::string> classes,
                       std::string instance, std::string network, std::size_t slots, const Call& activate)
    : hub_(hub),
      names_(std::move(names)),
      classes_(std::move(classes)),
      instance_(std::move(instance)),
      network_(std::move(network)),
      activate_(activate),
      slots_(slots) {}

void DeviceLoop::prepare(std::size_t slot, std::size_t positions, Program program) {
  slots_.at(slot).programs[positions] = std::move(program);
}

Stop DeviceLoop::run(std::uint64_t connection, double until_ms, double late_ms) {
  const std::lock_guard lock(mutex_);
  connection_ = connection;
  late_ms_ = late_ms;
  woken_ = false;
  if (taken_) return Stop::kTaken;
  if (drive(activate_) != 0) return taken_ ? Stop::kTaken : Stop::kFailed;
  std::optional<Stop> stop;
  while (true) {
    if (const auto trouble = finish()) return *trouble;
    const double now = now_ms();
    if (!stop && woken_) stop = Stop::kWoken;
    if (!stop && now >= until_ms) stop = Stop::kTime;
    if (flights_.empty() && stop) return *stop;
    if (!flights_.empty() && now > flights_.back().times.launched_ms + kSpinMs)
      std::this_thread::sleep_for(kPause);
    if (stop) continue;
    if (!hub_.has_message()) {
      const int timeout = flights_.empty() ? static_cast<int>(std::ceil(until_ms - now)) : 0;
      woken_ = hub_.wait(timeout);
    }
    if (hub_.has_message()) stop = begin();
    if (taken_) return Stop::kTaken;
    if (stop == Stop::kFailed) return *stop;
  }
}

// Submits the next message to the device if it is a plain request; otherwise returns the reason to stop.
std::optional<Stop> DeviceLoop::begin() {
  const auto next = hub_.next();
  if (!next || next->number != connection_) return Stop::kOther;
  const double arrived_ms = now_ms();
  const auto request = plain(next->message);
  if (!request || is_in_flight(request->header.id)) return Stop::kOther;
  const Part& part = request->part;
  if (flights_.size() == slots_.size()) return Stop::kCrowded;
  for (std::size_t index = 0; index < slots_.size(); ++index) {
    Slot& slot = slots_[index];
    if (!slot.free) continue;
    const auto found = slot.programs.find(part.position_count);
    if (found == slot.programs.end() || part.move_count > found->second.most_moves) break;
    const Program& program = found->second;
    join({part}, program.input);
    Answered times{arrived_ms, now_ms(), 0, static_cast<std::uint32_t>(part.position_count), request->rank};
    slot.free = false;
    flights_.push_back({*hub_.take(), request->header, index, &program, part.move_count, times});
    for (Step step : program.steps) {
      if (step.sized >= 0) {
        step.call.arguments[static_cast<std::size_t>(step.sized)] =
            step.fixed + step.per_move * part.move_count;
      }
      if (drive(step.call) != 0) return Stop::kFailed;
    }
    return std::nullopt;
  }
  unprepared_ = {part.position_count, part.move_count};
  return Stop::kUnprepared;
}

// Answers finished batches. Batches may run concurrently, so a later one may finish first.
std::optional<Stop> DeviceLoop::finish() {
  for (std::size_t index = 0; index < flights_.size();) {
    const Program& program = *flights_[index].program;
    const int status = drive(program.done);
    if (taken_) return Stop::kTaken;
    Flight& flight = flights_[index];
    if (status == program.busy) {
      if (now_ms() > flight.times.launched_ms + late_ms_) return Stop::kLate;
      ++index;
      continue;
    }
    if (status != 0) return Stop::kFailed;
    flight.times.ended_ms = now_ms();
    if (!answer(flight)) return Stop::kNotFinite;
    slots_[flight.slot].free = true;
    flights_.erase(flights_.begin() + static_cast<std::ptrdiff_t>(index));
  }
  return std::nullopt;
}

bool DeviceLoop::answer(const Flight& flight) {
  const OutputBlock& output = flight.program->output;
  const std::size_t count = flight.times.positions;
  const auto floats = [&](std::size_t at, std::size_t number) {
    return std::span(reinterpret_cast<const float*>(output.memory + at), number);
  };
  const std::array arrays{floats(output.logits_at, flight.moves), floats(0, 3 * count),
                          floats(output.moves_left_at, count)};
  for (const auto& each : arrays)
    if (!is_finite(each.data(), each.size())) return false;
  const Answered& times = flight.times;
  const std::vector<unsigned char> header = written(
      ResultHeader{flight.header.id, times.launched_ms - times.arrived_ms, times.ended_ms - times.launched_ms,
                   static_cast<std::int64_t>(count), instance_, network_});
  hub_.send(flight.request.number,
            std::array{Bytes(header), bytes_of(arrays[0]), bytes_of(arrays[1]), bytes_of(arrays[2])});
  answered_.push_back(times);
  return true;
}

std::optional<DeviceLoop::Request> DeviceLoop::plain(const Message& message) const {
  const auto header = plain_evaluate(frames_of(message));
  if (!header || header->deadline_ms) return std::nullopt;
  if (std::find(names_.begin(), names_.end(), header->network) == names_.end()) return std::nullopt;
  const auto rank = std::find(classes_.begin(), classes_.end(), header->priority);
  if (rank == classes_.end()) return std::nullopt;
  const auto count = static_cast<std::size_t>(header->count);
  const Frame &positions = message[1], &offsets = message[2], &moves = message[3];
  const Part part{as<std::byte>(positions), as<std::uint32_t>(offsets), as<std::uint16_t>(moves), count,
                  moves.size / sizeof(std::uint16_t)};
  if (!is_sound(part)) return std::nullopt;
  return Request{*header, part, static_cast<std::uint32_t>(rank - classes_.begin())};
}

bool DeviceLoop::is_in_flight(std::int64_t id) const {
  return std::any_of(flights_.begin(), flights_.end(),
                     [id](const Flight& flight) { return flight.header.id == id; });
}

// Makes a call, during which another thread may take over.
int DeviceLoop::drive(const Call& call) {
  inside_since_ms_ = now_ms();
  mutex_.unlock();
  const int status = make(call);
  mutex_.lock();
  inside_since_ms_ = 0;
  return taken_ ? -1 : status;
}

std::vector<Answered> DeviceLoop::answered() {
  const std::lock_guard lock(mutex_);
  return std::exchange(answered_, {});
}

std::vector<Arrived> DeviceLoop::give_up() {
  const std::lock_guard lock(mutex_);
  return taken_flights();
}

std::optional<std::vector<Arrived>> DeviceLoop::take_over(double stuck_ms) {
  const std::lock_guard lock(mutex_);
  if (inside_since_ms_ == 0 || now_ms() - inside_since_ms_ < stuck_ms) return std::nullopt;
  return taken_flights();
}

std::vector<Arrived> DeviceLoop::taken_flights() {
  taken_ = true;
  std::vector<Arrived> requests;
  for (Flight& flight : flights_) {
    given_up_.push_back(flight.program);
    requests.push_back(std::move(flight.request));
  }
  flights_.clear();
  return requests;
}

bool DeviceLoop::settle() {
  if (make(activate_) != 0) return false;
  for (const Program* program : given_up_) {
    int status;
    while ((status = make(program->done)) == program->busy) std::this_thread::sleep_for(kSettling);
    if (status != 0) return false;
  }
  return true;
}

}  // namespace wavefront::device

#endif
