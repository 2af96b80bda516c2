#include "priors.h"

#include <algorithm>
#include <functional>

namespace wavefront {

void sort_edges(std::span<const Move> moves, std::span<const uint16_t> priors, Edge* edges) {
  uint32_t words[256];
  size_t count = moves.size();
  for (size_t i = 0; i < count; ++i) words[i] = Edge(moves[i], priors[i]).word;
  std::sort(words, words + count, std::greater<>());
  for (size_t i = 0; i < count; ++i) edges[i].word = words[i];
}

}  // namespace wavefront
