#include "lockstep/strategy/optimizer/update/rows/table_updates.h"

#include "lockstep/strategy/optimizer/exchange/gradient_gate.h"

namespace lockstep::detail {

at::Tensor RowMemory::get(size_t parameter, int field, at::IntArrayRef sizes, at::ScalarType dtype) {
  const std::lock_guard lock(mutex_);
  at::Tensor& table = tables_[{parameter, field}];
  if (!table.defined()) table = lazy_zeros(sizes, dtype);
  return table;
}

void RowMemory::set(size_t parameter, int field, const at::Tensor& memory) {
  const std::lock_guard lock(mutex_);
  tables_[{parameter, field}] = memory;
}

void RowMemory::drop(size_t parameter) {
  const std::lock_guard lock(mutex_);
  for (int field = 0; field < StateFields::kMax; ++field) tables_.erase({parameter, field});
}

TableUpdates::TableUpdates(const OptimizerPrototype& prototype, const std::vector<at::Tensor>& stored,
                           const std::vector<size_t>& groups, const ExchangeScope& scope,
                           std::shared_ptr<RowMemory> memory)
    : prototype_(prototype),
      stored_(stored),
      groups_(groups),
      owner_(scope.publishes_sparse ? scope.reader : 0),
      num_owners_(scope.publishes_sparse ? scope.num_readers : 1),
      memory_(std::move(memory)),
      updates_(stored.size()) {}

RowUpdate& TableUpdates::update_of(size_t parameter) {
  std::unique_ptr<RowUpdate>& update = updates_[parameter];
  if (!update) {
    RowState::MakeMemory make_memory;
    if (shares_state()) {
      make_memory = [memory = memory_, parameter](int field, at::IntArrayRef sizes, at::ScalarType dtype) {
        return memory->get(parameter, field, sizes, dtype);
      };
    }
    const auto make_optimizer = [this, parameter](at::Tensor stand_in) {
      return prototype_.make_for(std::move(stand_in), groups_[parameter]);
    };
    update =
        std::make_unique<RowUpdate>(stored_[parameter], owner_, num_owners_, make_optimizer, std::move(make_memory));
  }
  return *update;
}

void TableUpdates::load(size_t parameter, int64_t steps, const std::array<at::Tensor, StateFields::kMax>& memory) {
  drop(parameter);
  for (int field = 0; field < StateFields::kMax && shares_state(); ++field) {
    if (memory[field].defined()) memory_->set(parameter, field, memory[field]);
  }
  update_of(parameter).state().load(steps, memory);
}

void TableUpdates::drop(size_t parameter) {
  updates_[parameter].reset();
  if (shares_state()) memory_->drop(parameter);
}

void TableUpdates::apply_published(size_t parameter, const AllGradients& all) {
  std::vector<at::Tensor> gradients;
  std::vector<char*> copies;
  for (size_t replica = 0; replica < all.size(); ++replica) {
    const at::Tensor& gradient = all[replica]->gradients[parameter];
    if (gradient.defined() && is_added(all, replica, parameter)) gradients.push_back(as_rows(gradient));
    copies.push_back(all[replica]->parameters[parameter].data);
  }
  update_of(parameter).apply(gradients, copies, prototype_.groups()[groups_[parameter]].options());
}

void TableUpdates::apply_sum(size_t parameter, const at::Tensor& gradient) {
  update_of(parameter).apply({as_rows(gradient)}, {static_cast<char*>(stored_[parameter].data_ptr())},
                             prototype_.groups()[groups_[parameter]].options());
}

}  // namespace lockstep::detail
