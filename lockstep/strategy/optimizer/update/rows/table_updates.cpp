#include "lockstep/strategy/optimizer/update/rows/table_updates.h"

#include "lockstep/strategy/optimizer/exchange/gradient_gate.h"

namespace lockstep::detail {

TableUpdates::TableUpdates(const OptimizerPrototype& prototype, const std::vector<at::Tensor>& stored,
                           const std::vector<size_t>& groups, const ExchangeScope& scope)
    : prototype_(prototype),
      stored_(stored),
      groups_(groups),
      owner_(scope.publishes_sparse ? scope.reader : 0),
      num_owners_(scope.publishes_sparse ? scope.num_readers : 1),
      updates_(stored.size()) {}

RowUpdate& TableUpdates::update_of(size_t parameter) {
  std::unique_ptr<RowUpdate>& update = updates_[parameter];
  if (!update) {
    update =
        std::make_unique<RowUpdate>(stored_[parameter], owner_, num_owners_, [this, parameter](at::Tensor stand_in) {
          return prototype_.make_for(std::move(stand_in), groups_[parameter]);
        });
  }
  return *update;
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
