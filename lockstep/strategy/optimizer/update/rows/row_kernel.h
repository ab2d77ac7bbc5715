#pragma once

#include <cstdint>
#include <span>

#include <c10/core/ScalarType.h>

#include "lockstep/strategy/optimizer/update/rows/row_list.h"

/// Internal: loops over rows of a table (see row_update.h).
namespace lockstep::detail {

/// Columns [begin, begin + width) of rows that have `in_row` columns. In a block they are stored row by row, without
/// gaps.
struct RowColumns {
  int64_t begin = 0;
  int64_t width = 0;
  int64_t in_row = 0;
};

/// Loops for tables of one dtype. Blocks hold the type of the computation: float for 16 bits, else the table's own.
class RowKernel {
 public:
  RowKernel() = default;
  RowKernel(const RowKernel&) = delete;
  RowKernel& operator=(const RowKernel&) = delete;
  virtual ~RowKernel() = default;

  virtual at::ScalarType block_dtype() const = 0;

  /// Adds `factor` times the sum of its entries, in their order, to each row of the first table, and copies the row to
  /// all others. `sums` has space for one row for each repeated row.
  virtual void add_sums(const RowList& list, const RowColumns& columns, double factor, void* sums,
                        std::span<char* const> tables) const = 0;

  /// Writes the sums of rows to a block, in the order of each row's last entry, starting at `entry`, until there are
  /// `rows.size()` of them or no more entries. Sets `rows` to the rows written; returns the entry to continue with.
  virtual int64_t sum(const RowList& list, const RowColumns& columns, int64_t entry, void* sums,
                      std::span<int64_t>& rows, void* block) const = 0;

  /// Copies rows of a table to a block.
  virtual void gather(std::span<const int64_t> rows, const RowColumns& columns, const char* table,
                      void* block) const = 0;
  /// Copies a block to rows of tables.
  virtual void scatter(std::span<const int64_t> rows, const RowColumns& columns, const void* block,
                       std::span<char* const> tables) const = 0;

  /// Gather and scatter for state: a table of the block's type whose values are stored xor the bits of `untouched`.
  virtual void gather_state(std::span<const int64_t> rows, const RowColumns& columns, const char* table,
                            double untouched, void* block) const = 0;
  virtual void scatter_state(std::span<const int64_t> rows, const RowColumns& columns, const void* block,
                             double untouched, char* table) const = 0;
};

/// Returns the loops for float, double, half or bfloat16; throws for other dtypes.
const RowKernel& row_kernel(at::ScalarType dtype);

}  // namespace lockstep::detail
