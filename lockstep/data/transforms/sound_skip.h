#pragma once

#include <cstdint>
#include <optional>

#include "lockstep/data/node.h"

namespace lockstep::data::detail {

/// Internal: what is known about the elements that `skip` passes. `skip` must count as `next` does. A batch with an
/// element that fails is an error and a batch that is filled with later rows, so that batches can be counted without
/// making their rows only where no row fails.
enum class Skipped {
  /// Some may fail.
  Unknown,
  /// Those of this shard have not failed; those of others may.
  SoundInShard,
  /// `next` has returned every one of them before: a position is restored.
  Sound,
};

/// Says what is known about the elements that this thread skips, until it is destroyed.
class SkipScope {
 public:
  explicit SkipScope(Skipped skipped);
  ~SkipScope();
  SkipScope(const SkipScope&) = delete;
  SkipScope& operator=(const SkipScope&) = delete;

  static Skipped current();

 private:
  Skipped before_;
};

/// Whether elements of the graph may fail, by themselves or because they do not fit into a batch of the others. False
/// for tables and ranges, also shuffled and sharded ones.
bool may_fail(const Node& node);

/// Whether errors change the number of elements: the graph has batches of elements that may fail.
bool errors_change_size(const Node& node);

/// Returns the number of elements of a dataset that is skipped as a whole, if it is known.
std::optional<int64_t> size_to_skip(const Node& node);

}  // namespace lockstep::data::detail
