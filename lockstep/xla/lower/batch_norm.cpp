#include "lockstep/xla/lower/expression.h"

namespace lockstep::xla {
namespace {

/// Where the arguments of one of LibTorch's forms of batch normalization are; -1: it has none.
struct Form {
  int weight = 1, bias = 2, running_mean = 3, running_variance = 4, training = 5, momentum = 6, eps = 7;
  /// Whether new running statistics are results instead of being written.
  bool functional = false;
  /// Whether a form without the flag trains.
  bool trains = true;
};

Value per_channel(const Value& channel, const Value& like) { return broadcast_dims(channel, like->shape, {1}); }

std::vector<int64_t> all_but_channels(const Value& a) {
  std::vector<int64_t> dims = all_dims(a);
  dims.erase(dims.begin() + 1);
  return dims;
}

Value optional(const AtenCall& call, int i) { return i >= 0 && call.has(i) ? widened(call.value(i)) : Value(); }

/// The dtype of statistics: that of the parameters, which may be wider than the input's.
Dtype statistics_dtype(const AtenCall& call, std::initializer_list<int> parameters) {
  for (int i : parameters) {
    if (i >= 0 && call.has(i)) return dtype_of(call, i);
  }
  return dtype_of(call, 0);
}

struct Statistics {
  Value mean, variance;
  /// Without bias, for the running statistics.
  Value unbiased;
};
Statistics statistics(const Value& a) {
  const std::vector<int64_t> dims = all_but_channels(a);
  const double count = static_cast<double>(product(a->shape, dims));
  const Value mean = sum(a, dims) / count;
  const Value squares = sum(square(a - per_channel(mean, a)), dims);
  return {mean, squares / count, squares / (count - 1)};
}

Value normalized(const AtenCall& call, const Form& form, const Value& a, const Value& mean, const Value& inverse) {
  const Value weight = optional(call, form.weight), bias = optional(call, form.bias);
  Value result = (a - per_channel(mean, a)) * per_channel(weight ? inverse * weight : inverse, a);
  if (bias) result = result + per_channel(bias, a);
  return convert(result, dtype_of(call, 0));
}

/// Updates the running statistics and returns them.
Values moved(const AtenCall& call, const Form& form, const Statistics& batch) {
  Values now;
  for (const auto& [position, fresh] :
       {std::pair(form.running_mean, batch.mean), std::pair(form.running_variance, batch.unbiased)}) {
    const Value before = optional(call, position);
    if (!before) continue;
    const Value momentum = call.scalar(form.momentum, before->dtype);
    now.push_back(convert(before * (1 - momentum) + fresh * momentum, dtype_of(call, position)));
    if (!form.functional) call.write(position, now.back());
  }
  return now;
}

/// Result, saved mean, saved inverse deviation, then running statistics of functional forms.
template <Form form>
Values batch_norm(const AtenCall& call) {
  const Value a = widened(call.value(0));
  const Dtype kept = statistics_dtype(call, {form.weight, form.running_mean});
  bool training = form.trains;
  if constexpr (form.training >= 0) training = call.flag(form.training);
  if (!training) {
    const Value inverse = rsqrt(optional(call, form.running_variance) + call.scalar(form.eps, a->dtype));
    const Value none = fill(0, kept, {0});
    Values result{normalized(call, form, a, optional(call, form.running_mean), inverse), none, none};
    if (form.functional) result.append({call.value(form.running_mean), call.value(form.running_variance)});
    return result;
  }
  const Statistics batch = statistics(a);
  const Value inverse = rsqrt(batch.variance + call.scalar(form.eps, a->dtype));
  Values result{normalized(call, form, a, batch.mean, inverse), convert(batch.mean, kept), convert(inverse, kept)};
  const Values now = moved(call, form, batch);
  if (form.functional) result.append(now.begin(), now.end());
  return result;
}

/// Forms with a fourth result, a workspace of other libraries, which stays empty.
template <Form form>
Values batch_norm_with_reserve(const AtenCall& call) {
  Values result = batch_norm<form>(call);
  result.insert(result.begin() + 3, fill_integer(0, at::kByte, {0}));
  return result;
}

// gradient input weight running_mean running_var save_mean save_invstd train eps output_mask
Values batch_norm_backward(const AtenCall& call) {
  const Value gradient = widened(call.value(0)), a = widened(call.value(1)), weight = optional(call, 2);
  const std::vector<int64_t> dims = all_but_channels(a);
  const double count = static_cast<double>(product(a->shape, dims));
  const bool training = call.flag(7);
  const Value mean = widened(call.value(training ? 5 : 3));
  const Value inverse = training ? widened(call.value(6)) : rsqrt(widened(call.value(4)) + call.scalar(8, mean->dtype));
  const Value normal = (a - per_channel(mean, a)) * per_channel(inverse, a);
  const Value of_bias = sum(gradient, dims), of_weight = sum(gradient * normal, dims);
  const auto wanted = call.argument(9).toBoolList();
  const Dtype parameters = statistics_dtype(call, {2, 3});
  Values result(3);
  if (wanted[0]) {
    Value centred = gradient;
    if (training) {
      centred = gradient - per_channel(of_bias / count, a) - normal * per_channel(of_weight / count, a);
    }
    result[0] = convert(centred * per_channel(weight ? inverse * weight : inverse, a), dtype_of(call, 1));
  }
  if (wanted[1]) result[1] = convert(of_weight, parameters);
  if (wanted[2]) result[2] = convert(of_bias, parameters);
  return result;
}

constexpr Form kPlain{};
constexpr Form kNoStatistics{.running_mean = -1, .running_variance = -1, .training = 3, .momentum = 4, .eps = 5};
constexpr Form kFunctional{.functional = true};
constexpr Form kEvaluation{.training = -1, .momentum = 5, .eps = 6, .trains = false};
constexpr Form kUpdate{.training = -1, .momentum = 5, .eps = 6};
constexpr Form kFunctionalUpdate{.training = -1, .momentum = 5, .eps = 6, .functional = true};

const Lowering kBatchNorms[] = {
    {"native_batch_norm", batch_norm<kPlain>},
    {"_native_batch_norm_legit", batch_norm<kPlain>},
    {"_native_batch_norm_legit.no_stats", batch_norm<kNoStatistics>},
    {"_native_batch_norm_legit_functional", batch_norm<kFunctional>},
    {"_native_batch_norm_legit_no_training", batch_norm<kEvaluation>},
    {"_batch_norm_with_update", batch_norm_with_reserve<kUpdate>},
    {"_batch_norm_with_update_functional", batch_norm_with_reserve<kFunctionalUpdate>},
    {"_batch_norm_no_update", batch_norm_with_reserve<kEvaluation>},
    {"native_batch_norm_backward", batch_norm_backward},
    {"batch_norm_backward", batch_norm_backward},
};

}  // namespace

Lowerings batch_norm_lowerings() { return kBatchNorms; }

}  // namespace lockstep::xla
