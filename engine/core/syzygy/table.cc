// SPDX-License-Identifier: GPL-3.0-or-later
#include "syzygy/table.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

namespace wavefront::syzygy {
namespace {

using Magic = std::array<uint8_t, 4>;
constexpr Magic kWdlMagic{0x71, 0xE8, 0x23, 0x5D};
constexpr Magic kDtzMagic{0xD7, 0x66, 0x0C, 0xA5};

constexpr size_t kChecksumBytes = 16;  // after the data, which ends at a multiple of 64

// The file's flags.
constexpr uint8_t kBothSides = 1;
constexpr uint8_t kHasPawns = 2;

// A DTZ part's flags.
constexpr uint8_t kBlackToMove = 1;
constexpr uint8_t kHasLists = 2;
constexpr uint8_t kWinsInPlies = 4;  // else in moves
constexpr uint8_t kLossesInPlies = 8;
constexpr uint8_t kWideLists = 16;  // entries of 16 bits instead of 8

// Returns the index of a value's list.
size_t list_of(Wdl wdl) {
  switch (wdl) {
    case Wdl::kLoss:
      return 1;
    case Wdl::kCursedWin:
      return 2;
    case Wdl::kBlessedLoss:
      return 3;
    default:
      return 0;
  }
}

bool in_plies(Wdl wdl, uint8_t flags) {
  return (wdl == Wdl::kWin && (flags & kWinsInPlies)) || (wdl == Wdl::kLoss && (flags & kLossesInPlies));
}

}  // namespace

TableFile::TableFile(const std::filesystem::path& path, const Material& material, Metric metric)
    : file_(path), metric_(metric), has_pawns_(material.has_pawns()) {
  const auto bytes = file_.bytes();
  const Magic& magic = metric == Metric::kWdl ? kWdlMagic : kDtzMagic;
  if (bytes.size() < magic.size() || !std::equal(magic.begin(), magic.end(), bytes.begin())) {
    throw DamagedTable("it is no Syzygy table");
  }
  if (bytes.size() % 64 != kChecksumBytes) throw DamagedTable("it is cut short");
  ByteReader reader(bytes.first(bytes.size() - kChecksumBytes));
  read_header(reader, material);
  if (metric == Metric::kDtz) read_lists(reader);
  for (Part& part : parts_) part.values.read_samples(reader);
  for (Part& part : parts_) part.values.read_lengths(reader);
  for (Part& part : parts_) part.values.read_blocks(reader);
}

void TableFile::read_header(ByteReader& reader, const Material& material) {
  reader.take(kWdlMagic.size());
  const uint8_t flags = reader.u8();
  sides_ = metric_ == Metric::kWdl && !material.symmetric() ? 2 : 1;
  if (((flags & kHasPawns) != 0) != has_pawns_ ||
      (metric_ == Metric::kWdl && ((flags & kBothSides) != 0) != (sides_ == 2))) {
    throw DamagedTable("it belongs to other material than its name says");
  }
  const int files = has_pawns_ ? 4 : 1;
  const bool both_have_pawns = material.counts[kWhite][kPawn] > 0 && material.counts[kBlack][kPawn] > 0;
  const auto men = static_cast<size_t>(material.men());
  std::vector<Numbering> numberings;
  for (int file = 0; file < files; ++file) {
    // The lower half of each byte is for White to move, the upper half for Black.
    const uint8_t leading_digits = reader.u8();
    const uint8_t pawns_digits = both_have_pawns ? reader.u8() : uint8_t{0};
    const uint8_t* packed = reader.take(men);
    for (int side = 0; side < sides_; ++side) {
      const auto half = [side](uint8_t byte) {
        return static_cast<uint8_t>(side == 0 ? byte & 15 : byte >> 4);
      };
      std::vector<uint8_t> codes;
      for (const uint8_t byte : std::span(packed, men)) codes.push_back(half(byte));
      numberings.emplace_back(codes, half(leading_digits), half(pawns_digits), file);
    }
  }
  material_ = numberings.front().material();
  for (const Numbering& numbering : numberings) {
    const bool same_pawns = numbering.kinds().front() == numberings.front().kinds().front();
    if ((has_pawns_ && !same_pawns) || numbering.material() != material_) {
      throw DamagedTable("its parts have different material");
    }
  }
  if (material_ != material && material_ != material.swapped()) {
    throw DamagedTable("it belongs to other material than its name says");
  }
  reader.align(2);
  for (Numbering& numbering : numberings) {
    CompressedValues values(reader, numbering.size(), metric_ == Metric::kWdl);
    parts_.push_back({std::move(numbering), std::move(values), {}});
  }
}

void TableFile::read_lists(ByteReader& reader) {
  for (Part& part : parts_) {
    const uint8_t flags = part.values.flags();
    if (!(flags & kHasLists)) continue;
    const bool wide = flags & kWideLists;
    if (wide) reader.align(2);
    for (int list = 0; list < 4; ++list) {
      const uint32_t size = wide ? reader.u16() : reader.u8();
      part.lists.push_back({reader.take(size * (wide ? 2 : 1)), size});
    }
  }
  reader.align(2);
}

TableFile::Place TableFile::find(const Position& position) const {
  // The file has one colouring of the material, and only White to move if both sides have the same men.
  const bool black_to_move = position.side_to_move() == kBlack;
  const bool swapped = material_.symmetric() ? black_to_move : Material::of(position) != material_;
  const int side = black_to_move != swapped ? 1 : 0;
  const auto collect = [&](const Kind& kind, Square* squares) {
    Bitboard set = position.pieces(swapped ? ~kind.color : kind.color, kind.type);
    if (swapped) set = mirror_ranks(set);
    while (set != 0) *squares++ = pop_first(set);
    return squares;
  };

  std::array<Square, kMostMen> squares;
  size_t file = 0;
  Square* next = squares.data();
  if (has_pawns_) {
    next = collect(parts_.front().numbering.kinds().front(), next);
    file = static_cast<size_t>(lead_with_pawn({squares.data(), next}));
  }
  const Part& part =
      parts_[file * static_cast<size_t>(sides_) + static_cast<size_t>(side < sides_ ? side : 0)];
  for (const Kind& kind : part.numbering.kinds().subspan(has_pawns_ ? 1 : 0)) next = collect(kind, next);
  return {&part, side, part.numbering.number({squares.data(), next})};
}

std::optional<Wdl> TableFile::wdl(const Position& position) const {
  const Place place = find(position);
  const std::optional<int> stored = place.part->values.at(place.number);
  if (!stored || *stored > 4) return std::nullopt;
  return static_cast<Wdl>(*stored - 2);
}

std::optional<TableFile::Distance> TableFile::distance(const Position& position, Wdl wdl) const {
  const Place place = find(position);
  const uint8_t flags = place.part->values.flags();
  // Without pawns and with the same men, both sides have the same distances.
  const bool either_side = material_.symmetric() && !has_pawns_;
  if (!either_side && (flags & kBlackToMove) != place.side) return Distance{false, 0};
  std::optional<int> stored = place.part->values.at(place.number);
  if (!stored) return std::nullopt;
  if (flags & kHasLists) {
    const Part::List& list = place.part->lists[list_of(wdl)];
    if (static_cast<uint32_t>(*stored) >= list.size) return std::nullopt;
    stored = flags & kWideLists ? read_u16(list.entries + 2 * *stored) : list.entries[*stored];
  }
  return Distance{true, 1 + (in_plies(wdl, flags) ? *stored : 2 * *stored)};
}

}  // namespace wavefront::syzygy
