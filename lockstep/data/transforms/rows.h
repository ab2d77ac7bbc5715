#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "lockstep/data/element.h"
#include "lockstep/data/spec.h"

/// Inside: batches as rows. What can be a view is one: only `concat_rows` copies.
namespace lockstep::data::detail {

/// Returns how many rows the batch has: the size of the first dimension, or the length of the list, that all its leaves
/// share. Throws ValueError that names `operation` where they share none.
int64_t num_rows(const Element& batch, const char* operation);

/// Puts the `count` rows from `start` on into `result`; both lie inside the batch. May be called with `batch` itself.
void slice_rows(const Element& batch, int64_t start, int64_t count, Element& result);

/// Puts the rows of all pieces, which are one at least, one after the other into `result`. One piece alone is moved.
/// Throws ValueError that names `operation` where they do not fit together.
void concat_rows(std::vector<Element>& pieces, const char* operation, Element& result);

/// Returns a batch of no rows, with 0 for every dimension that is not known; nothing where the spec does not say
/// enough.
std::optional<Element> empty_rows(const ElementSpec& spec);

/// Checks, as far as the spec shows it, that elements have rows. Throws ValueError that says to call batch.
void check_has_rows(const ElementSpec& spec, const char* operation);

/// The rows of a batch one by one, without making tensors of them where that can be.
class BatchRows {
 public:
  BatchRows() = default;
  BatchRows(const Element& batch, const char* operation);

  int64_t size() const { return size_; }
  void row(int64_t index, Element& result) const;

 private:
  std::vector<std::variant<RowsOf, LeafList>> columns_;
  std::shared_ptr<const Layout> layout_;
  int64_t size_ = 0;
};

}  // namespace lockstep::data::detail
