#include "lockstep/strategy/optimizer/update/optimizer_prototype.h"

namespace lockstep::detail {

OptimizerPrototype::OptimizerPrototype(Factory factory, const Factory& make_front, const Groups& groups)
    : factory_(std::move(factory)) {
  // The parameters come afterwards: a constructor that makes state for its parameters, as Adagrad's does, makes none.
  Groups empty;
  for (const auto& group : groups) {
    empty.emplace_back(std::vector<at::Tensor>{});
    if (group.has_options()) empty.back().set_options(group.options().clone());
  }
  kind_ = factory_(empty);
  front_ = make_front(std::move(empty));
  for (size_t g = 0; g < groups.size(); ++g) front_->param_groups()[g].params() = groups[g].params();
}

std::unique_ptr<torch::optim::Optimizer> OptimizerPrototype::make_for(at::Tensor parameter, size_t group) const {
  Groups one;
  one.emplace_back(std::vector<at::Tensor>{std::move(parameter)}, groups()[group].options().clone());
  return factory_(std::move(one));
}

std::unique_ptr<torch::optim::Optimizer> OptimizerPrototype::make_for(
    const std::vector<std::vector<at::Tensor>>& parameters) const {
  Groups made;
  for (size_t g = 0; g < groups().size(); ++g) made.emplace_back(parameters[g], groups()[g].options().clone());
  return factory_(std::move(made));
}

}  // namespace lockstep::detail
