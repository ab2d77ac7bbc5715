#include "lockstep/nn/synchronised_batch_norm.h"

#include <algorithm>
#include <array>
#include <tuple>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lockstep/base/error.h"
#include "lockstep/base/wide_dtype.h"
#include "lockstep/comm/diagnostics/call_site.h"
#include "lockstep/comm/group.h"
#include "lockstep/nn/batch_norm_kernel.h"
#include "lockstep/strategy/context_frame.h"
#include "lockstep/strategy/strategy_impl.h"

namespace lockstep::nn::detail {
namespace {

using at::Tensor;
using lockstep::detail::ContextFrame;
using lockstep::detail::StrategyImpl;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// What replicas exchange numbers of channels with. It owns its group, so that a backward pass may outlive the
/// strategy.
struct ChannelExchange : torch::CustomClassHolder {
  ChannelExchange(const StrategyImpl& strategy, int replica)
      : group(strategy.group(replica)), options(strategy.communication_options()) {
    // The strategy's implementation has chosen its engine already.
    options.implementation = CommunicationImplementation::Auto;
    const auto type_of = [&](size_t i) { return strategy.devices()[i].torch_device.type(); };
    for (size_t i = 1; i < strategy.devices().size(); ++i) through_cpu = through_cpu || type_of(i) != type_of(0);
  }

  Tensor sent(const Tensor& numbers) const { return through_cpu ? numbers.to(at::kCPU) : numbers; }

  /// One row for each replica.
  Tensor all_gather(const Tensor& numbers) const {
    const comm::OperationScope operation({"batch_norm"});
    return group.all_gather(sent(numbers).unsqueeze(0), 0, options).to(numbers.device());
  }

  Tensor all_sum(const Tensor& numbers) const {
    const comm::OperationScope operation({"batch_norm"});
    return group.all_reduce(sent(numbers), ReduceOp::Sum, options).to(numbers.device());
  }

  const comm::Group group;
  CommunicationOptions options;
  /// Whether replicas are on devices of different types, which collectives cannot join.
  bool through_cpu = false;
};

using ExchangePtr = c10::intrusive_ptr<ChannelExchange>;

bool is_traced(const Tensor& tensor) { return tensor.device().type() == c10::DeviceType::XLA; }

at::ScalarType wide_dtype(const Tensor& tensor) { return lockstep::detail::wide_dtype(tensor.scalar_type()); }

/// The dtype of numbers of channels: double, except where devices compute it slowly.
at::ScalarType channel_dtype(const Tensor& input) { return is_traced(input) ? wide_dtype(input) : at::kDouble; }

/// Numbers of channels, in the shape that elements of `like` are combined with.
Tensor for_elements(const Tensor& channels, const Tensor& like) {
  std::vector<int64_t> shape(static_cast<size_t>(like.dim()), 1);
  shape[1] = channels.numel();
  return channels.to(like.scalar_type()).view(shape);
}

std::vector<int64_t> dims_of_values(const Tensor& input) {
  std::vector<int64_t> dims{0};
  for (int64_t dim = 2; dim < input.dim(); ++dim) dims.push_back(dim);
  return dims;
}

int64_t count_of(const Tensor& input) {
  int64_t count = input.size(0);
  for (int64_t dim = 2; dim < input.dim(); ++dim) count *= input.size(dim);
  return count;
}

/// Mean, squared distances and count of this replica: see channel_statistics.
Tensor own_statistics(const Tensor& wide) {
  if (suits_kernels(wide)) return channel_statistics(wide);
  const auto dims = dims_of_values(wide);
  const int64_t count = count_of(wide);
  const Tensor mean = wide.sum(dims) / static_cast<double>(std::max<int64_t>(count, 1));
  const Tensor distance = wide - for_elements(mean, wide);
  const Tensor squares = (distance * distance).sum(dims);
  const auto options = at::TensorOptions(channel_dtype(wide)).device(wide.device());
  return at::cat({mean.to(options), squares.to(options), at::full({1}, static_cast<double>(count), options)});
}

/// The statistics of all replicas.
struct Statistics {
  Tensor mean, variance, unbiased;
  /// Without dimensions: the number of values of a channel.
  Tensor count;
};

/// The same by functions of LibTorch, for other devices.
Tensor joined_by_functions(const Tensor& of_replicas, int64_t channels) {
  const Tensor means = of_replicas.narrow(1, 0, channels), squares = of_replicas.narrow(1, channels, channels);
  const Tensor counts = of_replicas.narrow(1, 2 * channels, 1);
  const Tensor count = counts.sum(0), mean = (means * counts).sum(0) / count.clamp_min(1);
  const Tensor distances = means - mean;
  return at::cat({mean, (squares + distances * distances * counts).sum(0), count});
}

Statistics join(const Tensor& of_replicas) {
  const int64_t channels = (of_replicas.size(1) - 1) / 2;
  const bool on_cpu = of_replicas.is_cpu() && of_replicas.scalar_type() == at::kDouble;
  const Tensor all = on_cpu ? joined_statistics(of_replicas.contiguous()) : joined_by_functions(of_replicas, channels);
  const Tensor squares = all.narrow(0, channels, channels), count = all[2 * channels];
  return {all.narrow(0, 0, channels), squares / count.clamp_min(1), squares / (count - 1).clamp_min(1), count};
}

/// The number of values of a channel on all replicas, where this replica has one or none; else -1. Traced replicas
/// always ask, because all of them must.
int64_t total_if_small(const ChannelExchange& exchange, const Tensor& input, const Tensor& total) {
  if (!is_traced(input)) return count_of(input) > 1 ? -1 : static_cast<int64_t>(total.item<double>());
  const Tensor own = at::full({1}, count_of(input), at::TensorOptions(at::kLong).device(at::kCPU));
  return exchange.group.all_gather(own, 0, exchange.options).sum().item<int64_t>();
}

void update_running(const Tensor& running, const Tensor& fresh, double momentum) {
  if (!running.defined()) return;
  const at::NoGradGuard no_grad;
  // Writes are not counted, as those of LibTorch's batch normalization.
  const Tensor data = running.variable_data();
  data.copy_(data.to(fresh.scalar_type()) * (1 - momentum) + fresh * momentum);
}

struct Normalization {
  Tensor output;
  /// Numbers of channels.
  Tensor mean, inverse;
  Tensor count;
};

/// An undefined tensor stays one.
Tensor as_channels(const Tensor& tensor, at::ScalarType dtype) {
  return tensor.defined() ? tensor.detach().to(dtype).contiguous() : Tensor();
}

Normalization normalize(const ChannelExchange& exchange, const BatchNormCall& call) {
  const Tensor wide = call.input.to(wide_dtype(call.input));
  const Statistics all = join(exchange.all_gather(own_statistics(wide)));
  const int64_t total = total_if_small(exchange, wide, all.count);
  LOCKSTEP_CHECK_VALUE(total != 1, "[batch_norm] Expected more than 1 value per channel when training, on all ",
                       "replicas together: input size=", call.input.sizes(), "; give a larger batch");
  const Tensor inverse = at::rsqrt(all.variance + call.eps);
  if (total != 0) {
    update_running(call.running_mean, all.mean, call.momentum);
    update_running(call.running_var, all.unbiased, call.momentum);
  }
  const Tensor weight = as_channels(call.weight, inverse.scalar_type());
  const Tensor bias = as_channels(call.bias, inverse.scalar_type());
  const Tensor scale = weight.defined() ? inverse * weight : inverse;
  Tensor output;
  if (suits_kernels(wide)) {
    output = normalized(wide, all.mean, scale, bias.defined() ? bias : at::zeros_like(scale));
  } else {
    output = (wide - for_elements(all.mean, wide)) * for_elements(scale, wide);
    if (bias.defined()) output = output + for_elements(bias, wide);
  }
  return {output.to(call.input.scalar_type()), all.mean, inverse, all.count};
}

/// Sums of the gradient, and of its product with the normalized input, over this replica's values.
std::pair<Tensor, Tensor> own_gradient_sums(const Tensor& gradient, const Tensor& input, const Tensor& mean,
                                            const Tensor& inverse) {
  if (suits_kernels(input)) {
    const auto sums = gradient_sums(gradient, input, mean).chunk(2);
    return {sums[0], sums[1] * inverse};
  }
  const auto dims = dims_of_values(input);
  const Tensor products = (gradient * (input - for_elements(mean, input))).sum(dims);
  return {gradient.sum(dims).to(mean.scalar_type()), products.to(mean.scalar_type()) * inverse};
}

/// The gradient in the layout of the input.
Tensor laid_out_as(const Tensor& gradient, const Tensor& input) {
  const Tensor wide = gradient.to(input.scalar_type());
  if (is_traced(input) || input.is_contiguous()) return wide.contiguous();
  return wide.contiguous(input.suggest_memory_format());
}

struct BatchNormFunction : torch::autograd::Function<BatchNormFunction> {
  static Tensor forward(AutogradContext* context, const ExchangePtr& exchange, const Tensor& input,
                        const Tensor& weight, const Tensor& bias, const Tensor& running_mean, const Tensor& running_var,
                        bool has_weight, bool has_bias, bool has_statistics, double momentum, double eps,
                        bool for_input) {
    at::AutoDispatchBelowADInplaceOrView below;
    const Normalization made = normalize(
        *exchange, {input, has_weight ? weight : Tensor(), has_bias ? bias : Tensor(),
                    has_statistics ? running_mean : Tensor(), has_statistics ? running_var : Tensor(), momentum, eps});
    context->saved_data["exchange"] = c10::IValue::make_capsule(exchange);
    context->saved_data["has_weight"] = has_weight;
    context->saved_data["has_bias"] = has_bias;
    context->saved_data["for_input"] = for_input;
    context->save_for_backward({input, weight, bias, made.mean, made.inverse, made.count});
    return made.output;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    LOCKSTEP_CHECK_IMPLEMENTED(!at::GradMode::is_enabled(),
                               "[batch_norm] synchronised batch normalization has first derivatives only: ",
                               "create_graph=true; use a normalization without the batch's statistics");
    const variable_list saved = context->get_saved_variables();
    const Tensor input = saved[0].to(wide_dtype(saved[0])), mean = saved[3], inverse = saved[4];
    const Tensor gradient = laid_out_as(gradients[0], input);
    const bool has_weight = context->saved_data["has_weight"].toBool();
    const auto [sum, product] = own_gradient_sums(gradient, input, mean, inverse);
    variable_list result(12);
    if (context->saved_data["for_input"].toBool()) {
      const auto exchange =
          c10::static_intrusive_pointer_cast<ChannelExchange>(context->saved_data["exchange"].toCapsule());
      const Tensor means = exchange->all_sum(at::cat({sum, product})) / saved[5].clamp_min(1);
      const auto of_all = means.chunk(2);
      const Tensor scale = has_weight ? inverse * saved[1].to(inverse.scalar_type()) : inverse;
      result[1] = of_input(gradient, input, mean, of_all[0].contiguous(), of_all[1] * inverse, scale)
                      .to(saved[0].scalar_type());
    }
    if (has_weight) result[2] = product.to(saved[1].scalar_type());
    if (context->saved_data["has_bias"].toBool()) result[3] = sum.to(saved[2].scalar_type());
    return result;
  }

 private:
  static Tensor of_input(const Tensor& gradient, const Tensor& input, const Tensor& mean, const Tensor& offset,
                         const Tensor& slope, const Tensor& scale) {
    if (suits_kernels(input)) return input_gradient(gradient, input, mean, offset, slope, scale);
    const Tensor distance = (input - for_elements(mean, input)) * for_elements(slope, input);
    return (gradient - for_elements(offset, input) - distance) * for_elements(scale, input);
  }
};

void check_sizes(const BatchNormCall& call) {
  LOCKSTEP_CHECK_VALUE(
      call.input.dim() >= 2,
      "[batch_norm] the input has a dimension of rows and one of channels: sizes=", call.input.sizes());
  LOCKSTEP_CHECK_TYPE(call.input.is_floating_point(),
                      "[batch_norm] the input is floating point: dtype=", call.input.scalar_type());
  LOCKSTEP_CHECK_VALUE(call.running_mean.defined() == call.running_var.defined(),
                       "[batch_norm] there are a running mean and a running variance, or neither");
  const std::array<std::pair<const char*, const Tensor*>, 4> all{{{"running_mean", &call.running_mean},
                                                                  {"running_var", &call.running_var},
                                                                  {"weight", &call.weight},
                                                                  {"bias", &call.bias}}};
  for (const auto& [name, tensor] : all) {
    LOCKSTEP_CHECK_VALUE(!tensor->defined() || tensor->numel() == call.input.size(1), "[batch_norm] ", name,
                         " should contain one number for each channel: ", name, "=", tensor->sizes(),
                         ", input=", call.input.sizes());
  }
}

/// The input without gaps between its elements, in a layout that it has.
Tensor without_gaps(const Tensor& input) {
  if (!input.is_cpu() || suits_kernels(input) || input.is_contiguous()) return input;
  return input.contiguous(input.suggest_memory_format());
}

}  // namespace

Tensor synchronised_batch_norm(const BatchNormCall& call) {
  const ContextFrame& frame = *lockstep::detail::current_frame();
  check_sizes(call);
  const auto exchange = c10::make_intrusive<ChannelExchange>(*frame.strategy, frame.replica);
  BatchNormCall own = call;
  own.input = without_gaps(call.input);
  const auto requires_grad = [](const Tensor& tensor) { return tensor.defined() && tensor.requires_grad(); };
  const bool for_gradient =
      at::GradMode::is_enabled() && (requires_grad(own.input) || requires_grad(own.weight) || requires_grad(own.bias));
  if (!for_gradient) return normalize(*exchange, own).output;
  // Functions of autograd take defined tensors only.
  const auto or_any = [&](const Tensor& tensor) { return tensor.defined() ? tensor : own.input.detach(); };
  return BatchNormFunction::apply(exchange, own.input, or_any(own.weight), or_any(own.bias), or_any(own.running_mean),
                                  or_any(own.running_var), own.weight.defined(), own.bias.defined(),
                                  own.running_mean.defined(), own.momentum, own.eps, requires_grad(own.input));
}

bool is_in_one_of_several_replicas() {
  const ContextFrame* const frame = lockstep::detail::current_frame();
  return frame != nullptr && frame->replica >= 0 && frame->strategy->num_replicas_in_sync() > 1;
}

void use_synchronised_batch_norm() {
  lockstep::detail::BatchNormOverride::set_function([](const BatchNormCall& call) {
    return is_in_one_of_several_replicas() ? synchronised_batch_norm(call) : Tensor();
  });
}

}  // namespace lockstep::nn::detail
