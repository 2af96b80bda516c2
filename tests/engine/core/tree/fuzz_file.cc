// SPDX-License-Identifier: GPL-3.0-or-later
// Loading of damaged and forged trees: built with sanitizers and run by test_random_programs.py.
//
//     fuzz_file ROUNDS SEED FOLDER
//
// A round saves a searched tree, changes bytes of the file, and loads it: with the old checksum it must be
// refused, with a new one it is refused or can be searched, with batches as usual. Prints how many files were
// refused, and how many were loaded.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

#include "../../../fuzzing.h"
#include "chess/attacks.h"
#include "tree/file_stream.h"
#include "tree/random_evaluator.h"
#include "tree/tree.h"

namespace wavefront::tree {
namespace {

const char* const kPositions[] = {
    "r1bqk2r/pppp1ppp/2n2n2/2b1p3/2B1P3/2N2N2/PPPP1PPP/R1BQK2R w KQkq - 6 5",
    "6k1/5ppp/8/8/8/8/5PPP/R3R1K1 w - - 0 1",
    "8/8/4k3/8/8/4p3/4K3/8 w - - 90 60",
    "7k/8/5K2/6Q1/8/8/8/8 w - - 0 1",
    "r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R w KQkq - 0 1",
};

void search(Tree& tree, int batches) {
  for (int i = 0; i < batches; ++i) {
    Batch batch(16);
    Evaluations evaluations;
    tree.collect(batch, 8, 40, i % 3 == 0 ? 8 : 0);
    evaluate_randomly(batch, evaluations);
    tree.apply(batch, evaluations.logits, evaluations.wdl, evaluations.moves_left);
  }
}

SearchParams random_params(Random& random) {
  SearchParams params;
  params.tree_bytes = size_t{1} << 20;
  params.cache_bytes = size_t{1} << 18;
  if (random() % 2 == 0) {
    params.known_draws = KnownDraws::kRepetition;
    params.value_choice_deviations = 2.0f;
    params.transposition_visits = 16;
    params.subtree_value_bias = 0.35f;
  }
  return params;
}

std::string contents_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Changes some bytes, or truncates the text. The first 12 bytes, magic and version, stay.
void damage(std::string& text, Random& random) {
  constexpr size_t kFirst = 12, kHeader = 400;
  for (size_t i = 0; i < size_t{1} << random() % 4; ++i) {
    const size_t end = random() % 2 == 0 ? text.size() : std::min(text.size(), kHeader);
    const size_t place = kFirst + below(random, end - kFirst);
    text[place] = random() % 4 == 0 ? static_cast<char>(text[place] ^ (1 << random() % 8))
                                    : static_cast<char>(random() % 3 == 0 ? 0xff : random());
  }
  if (random() % 10 == 0) text.resize(kFirst + below(random, text.size() - kFirst));
}

bool loads(Tree& tree, const std::filesystem::path& path) {
  try {
    tree.load(path, {{"network", "one"}});
    return true;
  } catch (const std::invalid_argument&) {
    return false;
  }
}

void use(Tree& tree, Random& random) {
  search(tree, 6);
  tree.lines(5);
  const auto children = tree.children(true);
  if (children.empty() || random() % 2 == 0) return;
  Game game(kPositions[random() % std::size(kPositions)], false);
  tree.set_position(game, 1);
  search(tree, 4);
}

}  // namespace

int run(int rounds, uint64_t seed, const std::filesystem::path& folder) {
  Random random(seed);
  uint64_t refused = 0, loaded = 0;
  for (int round = 0; round < rounds; ++round) {
    const SearchParams params = random_params(random);
    Tree tree(params);
    Game game(kPositions[random() % std::size(kPositions)], false);
    tree.set_position(game);
    search(tree, 1 + static_cast<int>(random() % 8));
    const std::filesystem::path path = folder / "tree";
    tree.save(path, {{"network", "one"}}, "");
    const std::string saved = contents_of(path);
    for (int change = 0; change < 20; ++change) {
      std::string text = saved;
      damage(text, random);
      if (text == saved) continue;
      std::ofstream(path, std::ios::binary) << text;
      Tree other(params);
      search(other, 2);
      const RootInfo before = other.root_info();
      require(!loads(other, path), "a wrong checksum is refused");
      require(other.root_info().visits == before.visits, "a refused file changes nothing");
      text.resize(std::max<size_t>(text.size(), 20) - 8);
      FileWriter writer(path);
      for (char byte : text) writer.put(static_cast<uint8_t>(byte));
      writer.finish();
      loads(other, path) ? ++loaded : ++refused;
      use(other, random);
    }
  }
  std::printf("refused %llu loaded %llu\n", static_cast<unsigned long long>(refused),
              static_cast<unsigned long long>(loaded));
  return 0;
}

}  // namespace wavefront::tree

int main(int count, char** arguments) {
  if (count != 4) return 2;
  wavefront::chess::initialise_attacks();
  return wavefront::tree::run(std::atoi(arguments[1]), std::strtoull(arguments[2], nullptr, 10),
                              arguments[3]);
}
