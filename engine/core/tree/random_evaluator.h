// SPDX-License-Identifier: GPL-3.0-or-later
// A very fast network: evaluations from a hash of the encoded position.
//
// The results equal those of the evaluator's `random` backend bit for bit
// (evaluator/backends/reference/random.py has the specification). So a search builds the same tree in one
// process and with the evaluator.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "encoding/encoder.h"
#include "tree/batch.h"

namespace wavefront::tree {

struct Evaluations {
  std::vector<float> logits;      // one per policy index
  std::vector<float> wdl;         // three per position
  std::vector<float> moves_left;  // one per position
};

// Evaluates a batch, reusing the vectors' memory.
void evaluate_randomly(const Batch& batch, Evaluations& evaluations);

}  // namespace wavefront::tree
