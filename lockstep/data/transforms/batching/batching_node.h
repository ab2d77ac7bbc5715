#pragma once

#include <utility>

#include "lockstep/data/node.h"

namespace lockstep::data::detail {

/// Internal: base of batch and padded_batch: every `size` elements become one; the last batch may have fewer.
class BatchingNode : public UnaryNode {
 public:
  Cardinality cardinality() const override {
    return input()->cardinality().map(
        [&](int64_t count) { return drops_remainder() ? count / size_ : (count + size_ - 1) / size_; });
  }
  std::optional<int64_t> batch_size() const override { return size_; }
  std::optional<int64_t> uniform_batch_size() const override { return size_; }

 protected:
  BatchingNode(NodePtr input, int64_t size) : UnaryNode(std::move(input)), size_(size) {}

  virtual bool drops_remainder() const = 0;
  int64_t size() const { return size_; }
  /// The number of rows of every batch, where that is certain.
  PartialShape::Dim rows() const { return drops_remainder() ? PartialShape::Dim(size_) : std::nullopt; }
  /// The call that makes the node.
  std::string call(const char* name) const {
    return c10::str(name, "(", size_, drops_remainder() ? ", drop_remainder)" : ")");
  }

 private:
  int64_t size_;
};

}  // namespace lockstep::data::detail
