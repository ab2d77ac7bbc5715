#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "lockstep/data/element/element.h"
#include "lockstep/data/element/spec.h"

/// Internal: batches as rows. Results are views where possible: only `concat_rows` copies.
namespace lockstep::data::detail {

/// Returns the number of rows: the size of the first dimension, or the length of the list, of all leaves. Throws
/// ValueError that names `operation` where they differ.
int64_t num_rows(const Element& batch, const char* operation);

/// Stores the `count` rows from `start` on, all inside the batch, in `result`, which may be `batch` itself.
void slice_rows(const Element& batch, int64_t start, int64_t count, Element& result);

/// Concatenates the rows of all pieces, at least one, into `result`. A single piece is moved. Throws ValueError that
/// names `operation` where their structures or shapes differ.
void concat_rows(std::vector<Element>& pieces, const char* operation, Element& result);

/// Returns a batch of no rows, with 0 for every unknown dimension; nothing where dtypes or ranks are unknown.
std::optional<Element> empty_rows(const ElementSpec& spec);

/// Throws ValueError that says to call batch where the spec shows that elements have no rows.
void check_has_rows(const ElementSpec& spec, const char* operation);

/// The rows of a batch one by one, without making a tensor for each where possible.
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
