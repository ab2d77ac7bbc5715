#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include "lockstep/api.h"
#include "lockstep/data/element/element.h"

/// Internal: whose memory an element is.
///
/// A user's function may write to the tensors that it is given, and nothing else changes. A leaf that is a `Row` points
/// to borrowed memory: a mapped file, a tensor of `from_tensor_slices`, a cache. A leaf that is a tensor belongs to its
/// element, unless a function returned a tensor that something else holds, too. So nothing is copied where
///   - a tensor belongs to its element alone, as after `batch` or another function;
///   - a row is all that is left of its buffer;
///   - a row is large and lies in a mapped file: the function gets pages of its own, which the system copies when they
///     are written.
/// Other rows are copied when a tensor is made of them, unless the function promises not to write (BorrowedTensors).
namespace lockstep::detail {
class HostCopier;
}  // namespace lockstep::detail

namespace lockstep::data::detail {

/// Returns the tensor of a leaf for a user, who may write to it; the leaf has no value afterwards. A leaf that is no
/// tensor, row or number throws TypeError.
LOCKSTEP_API at::Tensor take_tensor(Leaf& leaf);

/// As `take_tensor`, for a leaf that keeps its value: what it holds is copied.
LOCKSTEP_API at::Tensor copied_tensor(const Leaf& leaf);

/// Throws DataError where the leaf points to pages of a file that could not be read. For those who have read them; they
/// ask `any_bus_error` first.
LOCKSTEP_API void check_read(const Leaf& leaf);

/// Finds reads of mapped files that fail while a user's function runs: in the files of its element, which it holds over
/// the call, and in any file that the calling thread reads.
class LOCKSTEP_API MappedReads {
 public:
  /// Before the call. Throws DataError where the files of the element could not be read.
  explicit MappedReads(const Element& element);
  /// After the call. Throws DataError; `operation` is that of the function.
  void check(const char* operation) const;

 private:
  uint64_t failed_;
  uint64_t failed_on_thread_;
  c10::SmallVector<c10::intrusive_ptr<Buffer>, 2> files_;
};

/// Copies the element's tensors that something else holds, too, before a user's function gets them.
LOCKSTEP_API void own_tensors(Element& element);
/// The same with the iteration's `pin_memory` and `copier`: for batches that are copied to a GPU next.
LOCKSTEP_API void own_tensors(Element& element, bool pin_memory, lockstep::detail::HostCopier* copier);

/// Makes an element fit to be given out many times: its dense tensors on the CPU become rows, from which every user
/// gets a copy.
LOCKSTEP_API void lend_tensors(Element& element);

/// Copies what points to memory that lives elsewhere (files, tensors), or to a small part of a large buffer: what
/// remains lives in memory of its own, as large as the element. For elements that are kept.
LOCKSTEP_API void keep_in_memory(Element& element);

/// Copies what points to a small part of a buffer that nothing else may need: a row of a batch, a label of a record.
/// For elements that wait: memory is then bounded by their number. Pages of files, and memory that tensors outside of
/// the pipeline hold, are not copied.
LOCKSTEP_API void release_excess(Element& element);

/// The tensors of a function that promises not to write to them: rows become tensors that share their memory.
class LOCKSTEP_API BorrowedTensors {
 public:
  explicit BorrowedTensors(Element& in);
  /// After the call: throws ValueError where LibTorch has seen a write, and copies results that share the memory.
  void finish(Element& out) const;

 private:
  struct Borrowed {
    at::Tensor tensor;
    uint32_t version;
  };
  c10::SmallVector<Borrowed, 2> tensors_;
};

}  // namespace lockstep::data::detail
