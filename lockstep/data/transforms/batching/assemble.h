#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/data/element/element.h"
#include "lockstep/data/transforms/batching/misfits.h"
#include "lockstep/device/host_copier.h"

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
    /// Copies rows of large batches on several threads, if it is not null.
    std::shared_ptr<lockstep::detail::HostCopier> copier = nullptr;
    /// Named in messages.
    const char* operation = "batch";
  };

  explicit BatchAssembler(Options options);
  ~BatchAssembler();
  BatchAssembler(BatchAssembler&&) noexcept;
  BatchAssembler& operator=(BatchAssembler&&) noexcept;

  /// Adds one element. Elements that differ from the others are left out.
  void add(Element& element);
  /// At the end of the input: decides which elements belong to the batch.
  void end();
  /// Throws the ValueError of an element that was left out, if there is one: it names the element's number in the batch
  /// and both shapes.
  void throw_error() { misfits_.throw_error(); }

  bool has_misfits() const { return !misfits_.empty(); }
  int64_t size() const { return size_; }

  /// Moves the batch to `batch`; the assembler is empty afterwards.
  void finish(Element& batch);

 private:
  struct Form;
  struct Column;
  void start(const Element& first);
  /// Copies an element that was found to fit.
  void copy(Element& element);
  /// Copies leaf `index` to the batch at once, or leaves it to `copy_later`.
  void copy_now(size_t index, Leaf& leaf);
  /// Whether several threads copy the leaf together with others of the batch.
  bool is_copied_later(size_t index, const Leaf& leaf) const;
  void copy_later(size_t index, Leaf& leaf);
  void copy_waiting();
  /// Makes the elements of `group`, if any, the batch in place of those that it has.
  void replace(std::vector<Element> group);
  std::string misfit(const Element& element) const;
  static bool can_be_joined(const Element& a, const Element& b);

  Options options_;
  int64_t size_ = 0;
  std::vector<Column> columns_;
  /// The form of the elements of this batch, and of those of the batch before it.
  std::unique_ptr<Form> form_;
  std::unique_ptr<Form> form_before_;
  Misfits misfits_;
  /// What `copy_later` was called for, and the leaves that it is copied from.
  lockstep::detail::HostCopies waiting_;
  std::vector<Leaf> held_;
};

}  // namespace lockstep::data::detail
