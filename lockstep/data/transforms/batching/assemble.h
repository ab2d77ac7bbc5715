#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/data/element/element.h"

/// Internal: assembles elements into a batch. Every element is copied once.
namespace lockstep::data::detail {

/// Collects up to `capacity` elements of one shape. The first element determines the sizes of the batch's tensors;
/// numbers, rows and dense tensors on the CPU are copied into them, bytes and values of users' types are stored in
/// lists, tensors on other devices are stacked at the end.
class BatchAssembler {
 public:
  struct Options {
    int64_t capacity = 1;
    bool pin_memory = false;
    /// Named in messages.
    const char* operation = "batch";
  };

  explicit BatchAssembler(Options options);
  ~BatchAssembler();
  BatchAssembler(BatchAssembler&&) noexcept;
  BatchAssembler& operator=(BatchAssembler&&) noexcept;

  /// Adds one element. Throws ValueError that names the element's number and both shapes where it differs from the
  /// first.
  void add(Element& element);
  int64_t size() const { return size_; }

  /// Moves the batch to `batch`; the assembler is empty afterwards.
  void finish(Element& batch);

 private:
  struct Column;
  void start(const Element& first);

  Options options_;
  int64_t size_ = 0;
  std::vector<Column> columns_;
  std::shared_ptr<const Layout> layout_;
};

}  // namespace lockstep::data::detail
