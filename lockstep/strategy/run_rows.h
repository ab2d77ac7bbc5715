#pragma once

#include <cstdint>
#include <optional>
#include <type_traits>

#include "lockstep/api.h"
#include "lockstep/base/nest.h"
#include "lockstep/value/regroup.h"

/// Internal: the number of rows of a replica's batch.
namespace lockstep::detail {

/// Returns the number of rows of the batch that the calling replica was given: the first dimension of the first tensor
/// among the arguments of `run` that differ between replicas. Nothing where there is none.
LOCKSTEP_API std::optional<int64_t> rows_of_batch();

/// Says it, while the function given to `run` is called.
class LOCKSTEP_API RowsOfBatchScope {
 public:
  explicit RowsOfBatchScope(std::optional<int64_t> rows);
  ~RowsOfBatchScope();
  RowsOfBatchScope(const RowsOfBatchScope&) = delete;
  RowsOfBatchScope& operator=(const RowsOfBatchScope&) = delete;

 private:
  std::optional<int64_t> before_;
};

template <class Arg>
void find_rows([[maybe_unused]] std::optional<int64_t>& rows, [[maybe_unused]] int replica, const Arg& arg) {
  if constexpr (!std::is_same_v<std::remove_cvref_t<selected_t<Arg>>, Arg> && !kIsMirrored<Arg>) {
    if (rows) return;
    const auto& selected = select(replica, arg);
    nest::for_each_tensor(
        [&](const at::Tensor& tensor) {
          if (!rows && tensor.defined() && tensor.dim() > 0) rows = tensor.size(0);
        },
        selected);
  }
}

template <class... Args>
std::optional<int64_t> rows_of([[maybe_unused]] int replica, const Args&... args) {
  std::optional<int64_t> rows;
  (find_rows(rows, replica, args), ...);
  return rows;
}

}  // namespace lockstep::detail
