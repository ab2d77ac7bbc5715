#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/api.h"

namespace lockstep::data {

/// Counts the epochs that were started of a source and of all datasets that were made from it. A dataset that combines
/// several sources counts for all of them. Any number of threads may use it.
class LOCKSTEP_API Epochs {
 public:
  /// A counter of its own that begins with epoch `first`.
  explicit Epochs(uint64_t first = 0);
  /// Returns the common counter of datasets that are combined: epochs of one of them are epochs of all.
  static std::shared_ptr<Epochs> shared_by(const std::vector<std::shared_ptr<Epochs>>& parts);

  /// Starts an epoch and returns its number.
  uint64_t start();
  /// The number of the epoch that starts next.
  uint64_t next() const;
  void set_next(uint64_t epoch);
  /// Leaves out epochs below `epoch`.
  void advance_to(uint64_t epoch);

 private:
  std::vector<std::shared_ptr<uint64_t>> counters_;
};

}  // namespace lockstep::data
