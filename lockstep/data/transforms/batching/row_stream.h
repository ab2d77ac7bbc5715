#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "lockstep/data/node.h"

namespace lockstep::data::detail {

/// Internal: whether the rows of a stream may be in memory of others.
enum class RowMemory { Any, Own };

/// Internal: the batches of a node as one stream of rows.
class RowStream {
 public:
  /// Errors name `operation`.
  RowStream(NodePtr input, const Iteration& iteration, const char* operation, RowMemory memory = RowMemory::Any);

  /// Reads the next batch if the current one has no rows left. Returns false at the end.
  bool find();
  /// After `find`: the current batch, its first remaining row, and the number of remaining rows.
  const Element& batch() const { return batch_; }
  int64_t start() const { return start_; }
  int64_t left() const { return rows_ - start_; }
  /// Removes rows from the current batch.
  void take(int64_t count) { start_ += count; }
  /// The number of batches that `find` has read; it changes with the current batch.
  int64_t num_read() const { return num_read_; }

  /// Skips up to `count` rows and returns how many there were. Batches of a known size are skipped without making them.
  /// A batch that fails counts as one row.
  int64_t skip(int64_t count);
  /// Whether a batch may fail.
  bool may_fail() const { return may_fail_; }

 private:
  /// Reads the next batch, or returns false at the end.
  bool read(Element& batch);
  int64_t skip_batches(int64_t count);

  NodePtr node_;
  Iteration iteration_;
  std::unique_ptr<NodeIterator> input_;
  const char* operation_;
  RowMemory memory_;
  bool may_fail_;
  /// The size of batches, if all but the last one are sure to have it; nothing after an exception.
  std::optional<int64_t> uniform_size_;
  Element batch_;
  int64_t start_ = 0;
  int64_t rows_ = 0;
  int64_t num_read_ = 0;
  /// Batches that were read or skipped.
  int64_t position_ = 0;
};

}  // namespace lockstep::data::detail
