#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "lockstep/data/node.h"

namespace lockstep::data::detail {

/// Inside: the batches of a node as one stream of rows, for what cuts them anew.
class RowStream {
 public:
  /// Errors name `operation`.
  RowStream(NodePtr input, const Iteration& iteration, const char* operation);

  /// Makes sure that the current batch has rows left, with the next batches if need be. Returns false at the end.
  bool find();
  /// After `find`: the current batch, its first row that is left, and how many are.
  const Element& batch() const { return batch_; }
  int64_t start() const { return start_; }
  int64_t left() const { return rows_ - start_; }
  /// Passes over rows of the current batch.
  void take(int64_t count) { start_ += count; }
  /// Counts the batches that `find` has read, so that a change of the current one can be seen.
  int64_t num_read() const { return num_read_; }

  /// Passes over up to `count` rows and returns how many there were. Batches whose size is certain are not made.
  int64_t skip(int64_t count);

 private:
  int64_t skip_batches(int64_t count);

  NodePtr node_;
  Iteration iteration_;
  std::unique_ptr<NodeIterator> input_;
  const char* operation_;
  std::optional<int64_t> uniform_size_;
  Element batch_;
  int64_t start_ = 0;
  int64_t rows_ = 0;
  int64_t num_read_ = 0;
  /// Batches that were read or passed over.
  int64_t position_ = 0;
};

}  // namespace lockstep::data::detail
