// SPDX-License-Identifier: GPL-3.0-or-later
#include "gate/byte_account.h"

#ifdef __linux__

#include <algorithm>
#include <chrono>
#include <utility>

namespace wavefront::gate {

namespace {

// Frames under CURVE that may go to the service before it takes a message, and heartbeats expected per
// second.
constexpr std::int64_t kMostOpaqueFrames = 1024;
constexpr std::int64_t kHeartbeats = 32;

// ZeroMQ's memory for a small frame until its message is complete. Each frame under CURVE counts this much
// until a message is taken, heartbeats included, because a message of very many small frames never completes.
constexpr std::int64_t kOpaqueFrameBytes = 64;

std::int64_t seconds() {
  using std::chrono::steady_clock;
  return std::chrono::duration_cast<std::chrono::seconds>(steady_clock::now().time_since_epoch()).count();
}

}  // namespace

ByteAccount::ByteAccount(std::uint64_t link_number, std::string link_address, Door link_door,
                         const AccountLimits& limits, std::shared_ptr<Board> board)
    : number(link_number),
      address(std::move(link_address)),
      door(link_door),
      limits_(limits),
      board_(std::move(board)),
      forgiven_until_(seconds()) {}

bool ByteAccount::establish(bool administrator) {
  const std::lock_guard lock(mutex_);
  if (ended_ || established_) return true;
  established_ = board_->roll.enter(door, administrator);
  refused_ = !established_;
  board_->bell.ring(number);
  return established_;
}

bool ByteAccount::charge(std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (kept() + bytes > limits_.promised) return false;
  held_ += bytes;
  return true;
}

void ByteAccount::release(std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  held_ -= bytes;
}

void ByteAccount::answer(std::int64_t charged, std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  held_ -= charged;
  on_the_way_ = std::max<std::int64_t>(0, on_the_way_ + bytes);
}

void ByteAccount::took(std::int64_t cost) {
  const std::lock_guard lock(mutex_);
  if (ended_) return;
  cost = std::min(cost, arriving_);
  arriving_ -= cost;
  board_->buffered -= cost;
  opaque_frames_ = all_opaque_frames_ = 0;
  unpause();
}

void ByteAccount::cut() {
  const std::lock_guard lock(mutex_);
  if (ended_) return;
  cut_ = true;
  board_->bell.ring(number);
}

std::int64_t ByteAccount::arriving() const {
  const std::lock_guard lock(mutex_);
  return arriving_;
}

std::int64_t ByteAccount::held() const {
  const std::lock_guard lock(mutex_);
  return held_;
}

std::int64_t ByteAccount::unread() const {
  const std::lock_guard lock(mutex_);
  return unread_;
}

void ByteAccount::speaks(Mechanism mechanism) {
  mechanism_.store(mechanism, std::memory_order_relaxed);
}

bool ByteAccount::relayed(std::int64_t cost, std::int64_t opaque_frames) {
  const std::lock_guard lock(mutex_);
  arriving_ += cost;
  board_->buffered += cost;
  if (opaque_frames > 0) {
    const std::int64_t now = seconds();
    const std::int64_t forgiven = kHeartbeats * (now - forgiven_until_);
    forgiven_until_ = now;
    all_opaque_frames_ += opaque_frames;
    opaque_frames_ = std::max<std::int64_t>(0, opaque_frames_ - forgiven) + opaque_frames;
  }
  paused_ = is_full();
  return !paused_;
}

bool ByteAccount::brought(std::int64_t bytes, std::int64_t waiting) {
  const std::lock_guard lock(mutex_);
  // Frames have headers, and heartbeats come between them, so more arrives than was sent.
  on_the_way_ = std::max<std::int64_t>(0, on_the_way_ - bytes);
  unread_ += waiting;
  board_->buffered += waiting;
  return unread_ == 0 || kept() <= limits_.kept;
}

void ByteAccount::read(std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  unread_ -= bytes;
  board_->buffered -= bytes;
  unpause();
}

bool ByteAccount::is_to_be_cut() const {
  const std::lock_guard lock(mutex_);
  return cut_;
}

bool ByteAccount::is_established() const {
  const std::lock_guard lock(mutex_);
  return established_;
}

bool ByteAccount::take_refusal() {
  const std::lock_guard lock(mutex_);
  return std::exchange(refused_, false);
}

bool ByteAccount::dismiss() {
  const std::lock_guard lock(mutex_);
  if (established_) return false;
  take_off();
  return true;
}

void ByteAccount::end() {
  const std::lock_guard lock(mutex_);
  take_off();
}

void ByteAccount::take_off() {
  if (established_ && !ended_) board_->roll.leave(door);
  ended_ = true;
  board_->buffered -= arriving_ + unread_;
  arriving_ = unread_ = 0;
}

std::int64_t ByteAccount::kept() const {
  return held_ + on_the_way_ + unread_;
}

void ByteAccount::unpause() {
  if (!paused_ || is_full()) return;
  paused_ = false;
  board_->bell.ring(number);
}

bool ByteAccount::is_full() const {
  if (unread_ > limits_.kept / 2) return true;  // It must read answers before it sends more requests.
  return arriving_ + kOpaqueFrameBytes * all_opaque_frames_ >= limits_.arriving ||
         opaque_frames_ > kMostOpaqueFrames;
}

}  // namespace wavefront::gate

#endif
