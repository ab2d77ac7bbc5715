#include "lockstep/strategy/optimizer/update/rows/row_update.h"

#include <algorithm>
#include <typeinfo>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/optim/sgd.h>

#include "lockstep/base/dtype_name.h"
#include "lockstep/base/error.h"
#include "lockstep/device/thread_share.h"
#include "lockstep/strategy/optimizer/update/rows/row_block.h"
#include "lockstep/strategy/optimizer/update/rows/row_kernel.h"
#include "lockstep/strategy/optimizer/update/rows/row_list.h"
#include "lockstep/strategy/optimizer/update/rows/row_state.h"

namespace lockstep::detail {
namespace {

/// Bytes of gradients for which another thread is started.
constexpr int64_t kBytesPerThread = 256 * 1024;

/// Returns the options where an update is one product and one sum; otherwise null.
const torch::optim::SGDOptions* plain_sgd(const torch::optim::OptimizerOptions& options) {
  const auto* const sgd = dynamic_cast<const torch::optim::SGDOptions*>(&options);
  return sgd != nullptr && sgd->momentum() == 0 && sgd->weight_decay() == 0 ? sgd : nullptr;
}

}  // namespace

/// The rows of a gradient, and the tensors that hold them.
struct RowUpdate::Source {
  GradientRows rows;
  at::Tensor indices;
  at::Tensor values;
};

/// What one thread works with.
struct RowUpdate::WorkerSlot {
  RowList list;
  RowBlock block;
  /// The rows in the block.
  std::vector<int64_t> rows;
  /// Sums of rows that occur more than once.
  std::vector<char> sums;
};

bool RowUpdate::knows(const torch::optim::Optimizer& optimizer) {
  return update_rule(optimizer) != UpdateRule::Unknown;
}

RowUpdate::RowUpdate(at::Tensor table, int owner, int num_owners, const MakeOptimizer& make,
                     RowState::MakeMemory make_memory)
    : table_(std::move(table)),
      owner_(owner),
      num_owners_(num_owners),
      row_size_(table_.dim() > 0 ? c10::multiply_integers(table_.sizes().slice(1)) : 1),
      kernel_(row_kernel(table_.scalar_type())) {
  LOCKSTEP_CHECK_VALUE(table_.dim() > 0 && table_.device().is_cpu() && table_.is_contiguous(),
                       "[optimizer] a table that is updated by rows must be contiguous and on the CPU: shape=",
                       table_.sizes(), ", strides=", table_.strides(), ", device=", table_.device());
  const int num_threads = std::max(num_hardware_threads(), at::get_num_threads());
  for (int i = 0; i < num_threads; ++i) slots_.push_back({{}, {kernel_.block_dtype(), make}, {}, {}});
  const torch::optim::Optimizer& optimizer = slots_[0].block.optimizer();
  LOCKSTEP_CHECK_VALUE(knows(optimizer),
                       "[optimizer] only SGD, Adam, AdamW, Adagrad and RMSprop can update single rows: ", "optimizer=",
                       c10::demangle(typeid(optimizer).name()));
  state_ = std::make_unique<RowState>(optimizer, table_.sizes(), kernel_.block_dtype(), std::move(make_memory));
}

RowUpdate::~RowUpdate() = default;

RowUpdate::Source RowUpdate::read(const at::Tensor& gradient) const {
  LOCKSTEP_CHECK_VALUE(gradient.is_sparse() && gradient.sparse_dim() == 1 && gradient.device().is_cpu(),
                       "[optimizer] a table's gradient must be sparse in its rows and on the CPU: layout=",
                       gradient.layout(), ", device=", gradient.device());
  LOCKSTEP_CHECK_VALUE(gradient.sizes() == table_.sizes(),
                       "[optimizer] a gradient must have its table's shape: gradient=", gradient.sizes(),
                       ", table=", table_.sizes());
  LOCKSTEP_CHECK_TYPE(gradient.scalar_type() == table_.scalar_type(),
                      "[optimizer] a gradient must have its table's dtype: gradient=",
                      dtype_name(gradient.scalar_type()), ", table=", dtype_name(table_.scalar_type()));
  Source source;
  source.indices = gradient._indices().contiguous();
  source.values = gradient._values();
  const int64_t count = source.values.size(0);
  if (count > 0 && !source.values[0].is_contiguous()) source.values = source.values.contiguous();
  source.rows = {source.indices.data_ptr<int64_t>(), count, static_cast<const char*>(source.values.data_ptr()),
                 source.values.stride(0) * source.values.element_size()};
  return source;
}

int RowUpdate::num_slots(int64_t num_entries) const {
  const int64_t bytes = num_entries / num_owners_ * row_size_ * table_.element_size();
  const int64_t most = std::min<int64_t>(max_parallel_threads(), static_cast<int64_t>(slots_.size()));
  return static_cast<int>(std::clamp<int64_t>(bytes / kBytesPerThread, 1, most));
}

/// The table and its copies, each once.
std::vector<char*> RowUpdate::targets(const std::vector<char*>& copies) const {
  std::vector<char*> all{static_cast<char*>(table_.data_ptr())};
  for (char* const copy : copies) {
    if (std::find(all.begin(), all.end(), copy) == all.end()) all.push_back(copy);
  }
  return all;
}

void RowUpdate::apply(const std::vector<at::Tensor>& gradients, const std::vector<char*>& copies,
                      const torch::optim::OptimizerOptions& options) {
  LOCKSTEP_ASSERT(typeid(options) == typeid(slots_[0].block.optimizer().defaults()), typeid(options).name());
  bytes_moved_ = 0;
  std::vector<Source> sources;
  std::vector<GradientRows> rows;
  int64_t num_entries = 0;
  for (const at::Tensor& gradient : gradients) {
    if (!gradient.defined()) continue;
    sources.push_back(read(gradient));
    rows.push_back(sources.back().rows);
    num_entries += rows.back().count;
  }
  if (rows.empty()) return;
  const int slots = num_slots(num_entries);
  const RowOrder order = plain_sgd(options) != nullptr ? RowOrder::Arrival : RowOrder::Rows;
  for_each_in_parallel(slots, [&](int64_t slot, int) {
    slots_[slot].list.load(rows, table_.size(0), owner_ + num_owners_ * static_cast<int>(slot), num_owners_ * slots,
                           order);
  });
  state_->begin_step(options);
  const std::vector<char*> tables = targets(copies);
  for_each_in_parallel(slots, [&](int64_t slot, int) { update(slots_[slot], tables); });
  count_bytes(slots, tables.size());
}

void RowUpdate::update(WorkerSlot& slot, const std::vector<char*>& tables) const {
  if (slot.list.size() == 0) return;
  const int64_t width = std::min(row_size_, slot.block.capacity());
  const auto sum_bytes = static_cast<int64_t>(c10::elementSize(kernel_.block_dtype())) * width;
  slot.sums.resize(std::max(slot.sums.size(), static_cast<size_t>(slot.list.num_repeated() * sum_bytes)));
  const auto* const sgd = plain_sgd(state_->options());
  if (sgd == nullptr) slot.block.begin_step(*state_);
  for (int64_t begin = 0; begin < row_size_; begin += width) {
    const RowColumns columns{begin, std::min(width, row_size_ - begin), row_size_};
    if (sgd != nullptr) {
      kernel_.add_sums(slot.list, columns, -sgd->lr(), slot.sums.data(), tables);
    } else {
      update_blocks(slot, columns, tables);
    }
  }
}

void RowUpdate::update_blocks(WorkerSlot& slot, const RowColumns& columns, const std::vector<char*>& tables) const {
  RowBlock& block = slot.block;
  slot.rows.resize(static_cast<size_t>(block.capacity() / columns.width));
  for (int64_t entry = 0; entry < slot.list.size();) {
    std::span<int64_t> rows = slot.rows;
    entry = kernel_.sum(slot.list, columns, entry, slot.sums.data(), rows, block.gradient());
    block.resize(static_cast<int64_t>(rows.size()) * columns.width);
    kernel_.gather(rows, columns, tables[0], block.parameter());
    for (int i = 0; i < StateFields::kMax; ++i) {
      if (state_->uses(i)) kernel_.gather_state(rows, columns, state_->memory(i), state_->untouched(), block.field(i));
    }
    block.update(*state_);
    kernel_.scatter(rows, columns, block.parameter(), tables);
    for (int i = 0; i < StateFields::kMax; ++i) {
      if (state_->uses(i)) kernel_.scatter_state(rows, columns, block.field(i), state_->untouched(), state_->memory(i));
    }
  }
}

void RowUpdate::count_bytes(int slots, size_t num_tables) {
  const int64_t row_bytes = row_size_ * table_.element_size();
  const int64_t state_bytes = row_size_ * static_cast<int64_t>(c10::elementSize(kernel_.block_dtype()));
  const int64_t bytes_for_row =
      row_bytes * (1 + static_cast<int64_t>(num_tables)) + 2 * state_bytes * state_->num_used();
  for (int slot = 0; slot < slots; ++slot) {
    bytes_moved_ += slots_[slot].list.size() * row_bytes + slots_[slot].list.num_rows() * bytes_for_row;
  }
}

}  // namespace lockstep::detail
