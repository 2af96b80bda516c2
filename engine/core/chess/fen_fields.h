// SPDX-License-Identifier: GPL-3.0-or-later
// The fields of a FEN: which are there, and what becomes of their faults.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace wavefront::chess {

// Throws std::invalid_argument.
[[noreturn]] void refuse(const std::string& fault);

// What becomes of a fault that has one obvious correction: refused, or corrected and noted.
class Corrector {
 public:
  explicit Corrector(std::vector<std::string>* corrections) : corrections_(corrections) {}
  bool corrects() const { return corrections_ != nullptr; }
  void correct(const std::string& fault, const std::string& correction) const {
    if (!corrects()) refuse(fault);
    corrections_->push_back(fault + ": " + correction);
  }

 private:
  std::vector<std::string>* corrections_;  // null: nothing is corrected
};

// The fields behind the board and the side to move; empty where one is missing.
struct OptionalFields {
  std::string_view castling, en_passant, clock, number;
};

std::vector<std::string_view> split_fields(std::string_view fen);

// The fields behind the side to move. Some may be missing where the corrector corrects: their looks tell
// which, and the usual values are used for them.
OptionalFields read_optional(const std::vector<std::string_view>& fields, const Corrector& corrector);

}  // namespace wavefront::chess
