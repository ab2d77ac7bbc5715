#include "lockstep/strategy/optimizer/mean_loss.h"

#include <string>

#include <ATen/core/Reduction.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/generated/Functions.h>

#include "lockstep/base/log.h"

namespace lockstep::detail {
namespace {

using torch::autograd::Node;
namespace generated = torch::autograd::generated;

/// How deep sums of losses are searched.
constexpr int kMaxDepth = 8;

template <class... Losses>
bool has_mean_reduction(const Node& node) {
  const auto is_mean = [&]<class Loss>(const Loss* loss) {
    return loss != nullptr && loss->reduction == at::Reduction::Mean;
  };
  return (is_mean(dynamic_cast<const Losses*>(&node)) || ...);
}

bool is_loss_with_mean(const Node& node) {
  return has_mean_reduction<generated::BinaryCrossEntropyBackward0, generated::BinaryCrossEntropyWithLogitsBackward0,
                            generated::HuberLossBackward0, generated::MseLossBackward0,
                            generated::MultiMarginLossBackward0, generated::MultilabelMarginLossBackward0,
                            generated::NllLossBackward0, generated::NllLoss2DBackward0,
                            generated::SmoothL1LossBackward0, generated::SoftMarginLossBackward0>(node);
}

bool begins_with(const std::string& text, const char* prefix) { return text.rfind(prefix, 0) == 0; }

bool is_mean_node(const Node* node, int depth) {
  if (node == nullptr || depth == 0) return false;
  const std::string name = node->name();
  if (begins_with(name, "MeanBackward") || is_loss_with_mean(*node)) return true;
  if (!begins_with(name, "AddBackward") && !begins_with(name, "SubBackward") && !begins_with(name, "NegBackward")) {
    return false;
  }
  for (const auto& edge : node->next_edges()) {
    if (is_mean_node(edge.function.get(), depth - 1)) return true;
  }
  return false;
}

}  // namespace

bool is_mean_loss(const at::Tensor& loss) { return loss.dim() == 0 && is_mean_node(loss.grad_fn().get(), kMaxDepth); }

void warn_of_mean_loss(int num_replicas) {
  LOCKSTEP_LOG(Warn) << "minimize was given the mean loss of each replica, and sums the gradients of " << num_replicas
                     << " replicas: they are " << num_replicas << " times those of the whole batch. Use "
                     << "average_loss(losses) with one loss for each row, or make the optimizer with "
                     << "{.gradients = Gradients::Mean}";
}

}  // namespace lockstep::detail
