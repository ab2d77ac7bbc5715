#include "lockstep/strategy/run_rows.h"

#include <utility>

namespace lockstep::detail {
namespace {

thread_local std::optional<int64_t> rows_here;

}  // namespace

std::optional<int64_t> rows_of_batch() { return rows_here; }

RowsOfBatchScope::RowsOfBatchScope(std::optional<int64_t> rows) : before_(std::exchange(rows_here, rows)) {}
RowsOfBatchScope::~RowsOfBatchScope() { rows_here = before_; }

}  // namespace lockstep::detail
