// SPDX-License-Identifier: GPL-3.0-or-later
#include "syzygy/material.h"

namespace wavefront::syzygy {
namespace {

constexpr std::string_view kLetters = "PNBRQ";

}  // namespace

Material Material::of(const Position& position) {
  Material material;
  for (const Color color : {kWhite, kBlack}) {
    for (int type = kPawn; type <= kQueen; ++type) {
      material.counts[color][type] =
          static_cast<uint8_t>(count(position.pieces(color, static_cast<PieceType>(type))));
    }
  }
  return material;
}

std::optional<Material> Material::from_name(std::string_view name) {
  if (name.size() > kMostMen + 1) return std::nullopt;
  const size_t versus = name.find('v');
  if (versus == std::string_view::npos) return std::nullopt;
  Material material;
  int color = kWhite;
  for (std::string_view side : {name.substr(0, versus), name.substr(versus + 1)}) {
    if (side.empty() || side.front() != 'K') return std::nullopt;
    for (const char letter : side.substr(1)) {
      const size_t type = kLetters.find(letter);
      if (type == std::string_view::npos) return std::nullopt;
      ++material.counts[color][type];
    }
    ++color;
  }
  return material;
}

int Material::men() const {
  int men = 2;
  for (const auto& side : counts) {
    for (const uint8_t number : side) men += number;
  }
  return men;
}

uint64_t Material::key() const {
  uint64_t key = 0;
  for (const auto& side : counts) {
    for (const uint8_t number : side) key = key << 4 | number;
  }
  return key;
}

std::string Material::name() const {
  std::string name;
  for (const auto& side : counts) {
    name += name.empty() ? "K" : "vK";
    for (int type = kQueen; type >= kPawn; --type) name.append(side[type], kLetters[type]);
  }
  return name;
}

}  // namespace wavefront::syzygy
