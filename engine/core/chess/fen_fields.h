// SPDX-License-Identifier: GPL-3.0-or-later
// Splitting a FEN into fields, and the policy for errors in them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace wavefront::chess {

// Throws std::invalid_argument.
[[noreturn]] void refuse(const std::string& fault);

// Handles errors with one obvious correction: refuses, or corrects and records them.
class Corrector {
 public:
  explicit Corrector(std::vector<std::string>* corrections) : corrections_(corrections) {}
  bool corrects() const { return corrections_ != nullptr; }
  void correct(const std::string& fault, const std::string& correction) const {
    if (!corrects()) refuse(fault);
    corrections_->push_back(fault + ": " + correction);
  }

 private:
  std::vector<std::string>* corrections_;  // null: refuse all
};

// The fields after the board and the side to move; empty if missing.
struct OptionalFields {
  std::string_view castling, en_passant, clock, number;
};

std::vector<std::string_view> split_fields(std::string_view fen);

// Returns the fields after the side to move. If the corrector corrects, some may be missing: the format of
// the others tells which, and defaults replace them.
OptionalFields read_optional(const std::vector<std::string_view>& fields, const Corrector& corrector);

}  // namespace wavefront::chess
