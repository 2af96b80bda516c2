// SPDX-License-Identifier: GPL-3.0-or-later
// A network that costs next to nothing: evaluations made from a hash of the encoded position.
//
// Bit for bit what the evaluator's `random` backend answers (evaluator/backends/random.py specifies it), so
// that a search gives the same tree inside one process and through the evaluator.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "encoding/encoder.h"
#include "tree/batch.h"

namespace wavefront::tree {

struct Evaluations {
  std::vector<float> logits;      // one for each policy index
  std::vector<float> wdl;         // three for each position
  std::vector<float> moves_left;  // one for each position
};

// Evaluates what a batch would send, reusing the vectors' memory.
void evaluate_randomly(const Batch& batch, Evaluations& evaluations);

}  // namespace wavefront::tree
