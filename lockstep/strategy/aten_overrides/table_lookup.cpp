#include "lockstep/strategy/aten_overrides/table_lookup.h"

#include <algorithm>
#include <cstring>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "lockstep/base/error.h"
#include "lockstep/strategy/aten_overrides/dispatch_mode.h"

namespace lockstep::detail {
namespace {

/// Number of rows that are prefetched ahead of the one that is copied.
constexpr int64_t kAhead = 16;
constexpr uint64_t kLineBytes = 64;
/// Below these sizes prefetching gains nothing: small tables are in a cache.
constexpr size_t kSmallTableBytes = size_t{1} << 20;
constexpr int64_t kFewRows = 64;
/// Number of rows that one thread copies at least.
constexpr int64_t kRowsPerThread = 2048;

bool suits(const at::Tensor& table, const at::Tensor& ids) {
  return table.is_cpu() && table.dim() == 2 && table.is_contiguous() && table.nbytes() > kSmallTableBytes &&
         ids.is_cpu() && ids.scalar_type() == at::kLong && ids.is_contiguous() && ids.numel() >= kFewRows;
}

/// Prefetches a row. An address out of range is harmless.
void prefetch_row(uintptr_t table, int64_t row, uint64_t row_bytes) {
  const uintptr_t begin = table + static_cast<uint64_t>(row) * row_bytes;
  for (uint64_t k = 0; k < row_bytes; k += kLineBytes) __builtin_prefetch(reinterpret_cast<const void*>(begin + k));
}

void copy_rows(const at::Tensor& table, const int64_t* ids, int64_t begin, int64_t end, char* to) {
  const auto* const from = static_cast<const char*>(table.data_ptr());
  const int64_t num_rows = table.size(0);
  const int64_t row_bytes = table.size(1) * table.element_size();
  for (int64_t i = begin; i < end; ++i) {
    prefetch_row(reinterpret_cast<uintptr_t>(from), ids[std::min(i + kAhead, end - 1)], row_bytes);
    LOCKSTEP_CHECK_INDEX(ids[i] >= 0 && ids[i] < num_rows, "[embedding] there is no such row: row=", ids[i],
                         ", rows=", num_rows);
    std::memcpy(to + i * row_bytes, from + ids[i] * row_bytes, static_cast<size_t>(row_bytes));
  }
}

at::Tensor look_up(const at::Tensor& table, const at::Tensor& ids) {
  std::vector<int64_t> sizes = ids.sizes().vec();
  sizes.push_back(table.size(1));
  at::Tensor rows = at::empty(sizes, table.options().requires_grad(false));
  const auto* const all_ids = ids.data_ptr<int64_t>();
  auto* const to = static_cast<char*>(rows.data_ptr());
  at::parallel_for(0, ids.numel(), kRowsPerThread,
                   [&](int64_t begin, int64_t end) { copy_rows(table, all_ids, begin, end, to); });
  return rows;
}

struct LookUp : torch::autograd::Function<LookUp> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& table, const at::Tensor& ids) {
    context->save_for_backward({ids});
    context->saved_data["sizes"] = table.sizes().vec();
    return look_up(table, ids);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const at::Tensor ids = context->get_saved_variables()[0];
    const std::vector<int64_t> sizes = context->saved_data["sizes"].toIntVector();
    const at::Tensor values = gradients[0].reshape({ids.numel(), sizes[1]});
    return {at::_sparse_coo_tensor_unsafe(ids.reshape({1, -1}), values, sizes), at::Tensor()};
  }
};

/// Replaces LibTorch's function of that name.
at::Tensor embedding(const at::Tensor& table, const at::Tensor& ids, int64_t padding_idx, bool scale_grad_by_freq,
                     bool sparse) {
  const c10::impl::ExcludeDispatchKeyGuard once(kModeKey);
  const bool plain = sparse && !scale_grad_by_freq && padding_idx < 0;
  if (!plain || !suits(table, ids)) return at::embedding(table, ids, padding_idx, scale_grad_by_freq, sparse);
  if (!at::GradMode::is_enabled() || !table.requires_grad()) return look_up(table, ids);
  return LookUp::apply(table, ids);
}

c10::DispatchKey register_lookup() {
  [[maybe_unused]] static const bool registered =
      register_mode_functions([](torch::Library& library) { library.impl("embedding", TORCH_FN(embedding)); });
  return kModeKey;
}

}  // namespace

void TableLookups::prepare() { register_lookup(); }

TableLookups::TableLookups(bool on) {
  if (on) guard_.emplace(register_lookup());
}

}  // namespace lockstep::detail
