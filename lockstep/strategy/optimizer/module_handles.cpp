#include "lockstep/strategy/optimizer/module_handles.h"

#include <unordered_set>

#include <torch/nn/functional/instancenorm.h>  // before modules/instancenorm.h, which needs it
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/instancenorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/loss.h>
#include <torch/nn/modules/normalization.h>

namespace lockstep::detail {

using TensorDict = torch::OrderedDict<std::string, at::Tensor>;

// Access to private members is checked where a name is used, but not in an explicit instantiation.
TensorDict& registered_parameters(torch::nn::Module& module);
TensorDict& registered_buffers(torch::nn::Module& module);

template <TensorDict torch::nn::Module::*parameters, TensorDict torch::nn::Module::*buffers>
struct RegisteredTensors {
  friend TensorDict& registered_parameters(torch::nn::Module& module) { return module.*parameters; }
  friend TensorDict& registered_buffers(torch::nn::Module& module) { return module.*buffers; }
};

template struct RegisteredTensors<&torch::nn::Module::parameters_, &torch::nn::Module::buffers_>;

namespace {

using Visit = std::function<void(at::Tensor&)>;

template <class M>
void visit_members(torch::nn::Module& module, const Visit& visit) {
  auto* const made = module.as<M>();
  if (made == nullptr) return;
  if constexpr (requires { made->weight.defined(); }) visit(made->weight);
  if constexpr (requires { made->bias.defined(); }) visit(made->bias);
  if constexpr (requires { made->pos_weight.defined(); }) visit(made->pos_weight);
  if constexpr (requires { made->running_mean.defined(); }) visit(made->running_mean);
  if constexpr (requires { made->running_var.defined(); }) visit(made->running_var);
  if constexpr (requires { made->num_batches_tracked.defined(); }) visit(made->num_batches_tracked);
  if constexpr (requires { made->options._weight().defined(); }) visit(made->options._weight());
  if constexpr (requires { made->options.weight().defined(); }) visit(made->options.weight());
  if constexpr (requires { made->options.pos_weight().defined(); }) visit(made->options.pos_weight());
}

template <class... M>
void visit_members_of(torch::nn::Module& module, const Visit& visit) {
  (visit_members<M>(module, visit), ...);
}

void visit_known_members(torch::nn::Module& module, const Visit& visit) {
  namespace nn = torch::nn;
  visit_members_of<nn::EmbeddingImpl, nn::EmbeddingBagImpl, nn::LinearImpl, nn::BilinearImpl, nn::PReLUImpl>(module,
                                                                                                             visit);
  visit_members_of<nn::Conv1dImpl, nn::Conv2dImpl, nn::Conv3dImpl, nn::ConvTranspose1dImpl, nn::ConvTranspose2dImpl,
                   nn::ConvTranspose3dImpl>(module, visit);
  visit_members_of<nn::BatchNorm1dImpl, nn::BatchNorm2dImpl, nn::BatchNorm3dImpl, nn::InstanceNorm1dImpl,
                   nn::InstanceNorm2dImpl, nn::InstanceNorm3dImpl, nn::LayerNormImpl, nn::GroupNormImpl>(module, visit);
  visit_members_of<nn::NLLLossImpl, nn::CrossEntropyLossImpl, nn::BCELossImpl, nn::BCEWithLogitsLossImpl,
                   nn::MultiLabelSoftMarginLossImpl, nn::MultiMarginLossImpl>(module, visit);
}

}  // namespace

void visit_tensors(torch::nn::Module& module, const Visit& visit) {
  std::unordered_set<const torch::nn::Module*> seen;
  const auto visit_one = [&](torch::nn::Module& one) {
    if (!seen.insert(&one).second) return;
    for (auto* const tensors : {&registered_parameters(one), &registered_buffers(one)}) {
      for (auto& item : *tensors) visit(item.value());
    }
    visit_known_members(one, visit);
  };
  visit_one(module);
  for (const auto& submodule : module.modules(/*include_self=*/false)) visit_one(*submodule);
}

size_t count_handles(torch::nn::Module& module, const at::Tensor& tensor) {
  size_t count = 0;
  visit_tensors(module, [&](at::Tensor& handle) { count += handle.is_same(tensor) ? 1 : 0; });
  return count;
}

void replace_handles(torch::nn::Module& module, const at::Tensor& from, const at::Tensor& to) {
  const at::Tensor replaced = from;
  visit_tensors(module, [&](at::Tensor& handle) {
    if (handle.is_same(replaced)) handle = to;
  });
}

}  // namespace lockstep::detail
