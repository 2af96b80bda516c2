// SPDX-License-Identifier: GPL-3.0-or-later
// Identification of the fields of a FEN.
#include "chess/fen_fields.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <stdexcept>

namespace wavefront::chess {

namespace {

// Returns true if a text has the format of a field.
bool looks_like(size_t field, std::string_view text) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  if (text == "-") return field < 2;
  if (field == 0) return std::all_of(text.begin(), text.end(), is_letter);
  if (field == 1) return text.size() == 2 && is_letter(text[0]) && is_digit(text[1]);
  return std::all_of(text.begin() + (text[0] == '-'), text.end(), is_digit);
}

// Assigns texts to fields by their formats. Returns false if that is ambiguous.
bool assign_by_looks(std::span<const std::string_view> texts, OptionalFields& rest) {
  std::string_view* const places[] = {&rest.castling, &rest.en_passant, &rest.clock, &rest.number};
  size_t field = 0;
  for (const std::string_view text : texts) {
    while (field < std::size(places) && !looks_like(field, text)) ++field;
    if (field == std::size(places)) return false;
    *places[field++] = text;
  }
  return true;
}

}  // namespace

[[noreturn]] void refuse(const std::string& fault) {
  throw std::invalid_argument("FEN: " + fault);
}

std::vector<std::string_view> split_fields(std::string_view fen) {
  std::vector<std::string_view> fields;
  size_t start = 0;
  while ((start = fen.find_first_not_of(' ', start)) != std::string_view::npos) {
    const size_t end = std::min(fen.find(' ', start), fen.size());
    fields.push_back(fen.substr(start, end - start));
    start = end;
  }
  return fields;
}

OptionalFields read_optional(const std::vector<std::string_view>& fields, const Corrector& corrector) {
  const size_t count = fields.size();
  const std::string fault = std::to_string(count) + " fields instead of 6 (or 4, without the counters)";
  const bool complete = count == 4 || count == 6;
  if (!complete && (!corrector.corrects() || count < 2 || count > 6)) refuse(fault);
  if (count == 6) return {fields[2], fields[3], fields[4], fields[5]};
  if (!corrector.corrects()) return {fields[2], fields[3], {}, {}};
  OptionalFields rest;
  if (!assign_by_looks(std::span(fields).subspan(2), rest)) {
    if (count != 4) refuse(fault);
    rest = {fields[2], fields[3], {}, {}};
  }
  std::string missing, used;
  const auto note = [&](std::string_view& text, const char* name, const char* standard) {
    if (!text.empty()) return;
    text = standard;
    missing += (missing.empty() ? "" : ", ") + std::string(name);
    used += (used.empty() ? "" : " ") + std::string(standard);
  };
  note(rest.castling, "castling rights", "-");
  note(rest.en_passant, "en-passant square", "-");
  note(rest.clock, "halfmove clock", "0");
  note(rest.number, "move number", "1");
  corrector.correct("missing " + missing, used + " is used");
  return rest;
}

}  // namespace wavefront::chess
