// SPDX-License-Identifier: GPL-3.0-or-later
#include "exchange/batch_rule.h"

#include <algorithm>
#include <cmath>

namespace wavefront::exchange {

int BatchRule::capacity() const {
  return std::max({best, largest, filled});
}

int BatchRule::in_tree(std::int64_t visits) const {
  return visits >= std::int64_t{large_tree} * best ? std::max(best, largest) : best;
}

int BatchRule::wanted(std::int64_t visits, std::int64_t visits_in_flight) const {
  const std::int64_t most = in_tree(visits);
  std::int64_t borne = std::max<std::int64_t>(least, visits / share);
  if (factor != 0) {
    const auto root = static_cast<std::int64_t>(factor * std::sqrt(static_cast<double>(visits)));
    borne = std::max<std::int64_t>(least, std::min(borne, root));
  }
  if (!together) return static_cast<int>(std::min(most, borne));
  // Split into parts, so that one part is selected while the device computes the others.
  const std::int64_t parts = second == 0 ? 1 : std::clamp<std::int64_t>(borne / second, 1, in_flight);
  if (visits_in_flight == 0) return static_cast<int>(std::min(most, borne / parts));
  // Another batch is only worth its cost from a minimum size on.
  const std::int64_t left = borne - visits_in_flight;
  if (left < (second != 0 ? second : most)) return 0;
  return static_cast<int>(std::min(most, parts > 2 ? std::min(left, borne / parts) : left));
}

int BatchRule::fitting(double milliseconds) const {
  const int most = capacity();
  if (curve.empty() || (curve.back().first >= most && curve.back().second <= milliseconds)) return most;
  int fits = 1;
  for (const auto& [size, ms] : curve)
    if (ms <= milliseconds) fits = std::max(fits, size);
  return std::min(most, fits);
}

Asked BatchRule::next(std::int64_t visits, std::int64_t visits_in_flight, std::int64_t in_time) const {
  const int target = wanted(visits, visits_in_flight);
  if (target <= 0) return {};
  const auto sent = std::min<std::int64_t>({target, std::max<std::int64_t>(1, in_time), capacity()});
  const auto ahead = std::max<std::int64_t>(0, std::min<std::int64_t>(filled, in_time) - sent);
  return {static_cast<int>(sent), static_cast<int>(ahead)};
}

}  // namespace wavefront::exchange
