#pragma once

#include <cstdint>
#include <span>

#include <c10/core/ScalarType.h>

#include "lockstep/strategy/update/row_list.h"

/// Inside: loops over rows of a table (see row_update.h).
namespace lockstep::detail {

/// Columns [begin, begin + width) of rows that have `in_row` columns. In a block they lie one row after the other,
/// without gaps.
struct RowColumns {
  int64_t begin = 0;
  int64_t width = 0;
  int64_t in_row = 0;
};

/// Loops for tables of one dtype. Blocks hold the type that is computed in: float for 16 bits, else the table's own.
class RowKernel {
 public:
  RowKernel() = default;
  RowKernel(const RowKernel&) = delete;
  RowKernel& operator=(const RowKernel&) = delete;
  virtual ~RowKernel() = default;

  virtual at::ScalarType block_dtype() const = 0;

  /// Adds `factor` times the sum of its entries, in their order, to each row of the first table, and writes the row to
  /// all others. `sums` has a row for each one that is repeated.
  virtual void add_sums(const RowList& list, const RowColumns& columns, double factor, void* sums,
                        std::span<char* const> tables) const = 0;

  /// Writes such sums to a block, from those rows on whose last entry is at `entry` or after it, until the block's
  /// `rows` are found or there are no more; returns the entry to go on with, and sets `rows` to those that were found.
  virtual int64_t sum(const RowList& list, const RowColumns& columns, int64_t entry, void* sums,
                      std::span<int64_t>& rows, void* block) const = 0;

  /// Copies rows of a table to a block.
  virtual void gather(std::span<const int64_t> rows, const RowColumns& columns, const char* table,
                      void* block) const = 0;
  /// Copies a block to rows of tables.
  virtual void scatter(std::span<const int64_t> rows, const RowColumns& columns, const void* block,
                       std::span<char* const> tables) const = 0;

  /// The same for a table of the block's type that holds its values' bits with those of `untouched` flipped.
  virtual void gather_state(std::span<const int64_t> rows, const RowColumns& columns, const char* table,
                            double untouched, void* block) const = 0;
  virtual void scatter_state(std::span<const int64_t> rows, const RowColumns& columns, const void* block,
                             double untouched, char* table) const = 0;
};

/// Returns the loops for float, double, half or bfloat16; others are an error.
const RowKernel& row_kernel(at::ScalarType dtype);

}  // namespace lockstep::detail
