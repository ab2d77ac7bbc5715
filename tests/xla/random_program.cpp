#include "tests/xla/random_program.h"

#include <algorithm>
#include <random>

#include <torch/csrc/autograd/autograd.h>

namespace lockstep::xla::test {
namespace {

using at::Tensor;

/// What the operations of a program draw from: numbers and earlier results.
struct State {
  explicit State(uint32_t seed) : generator(seed) {}
  int64_t below(int64_t limit) { return static_cast<int64_t>(generator() % static_cast<uint64_t>(limit)); }
  const Tensor& any() { return values[below(static_cast<int64_t>(values.size()))]; }
  /// A dimension of `a`, which has one.
  int64_t dim(const Tensor& a) { return below(a.dim()); }

  std::mt19937 generator;
  std::vector<Tensor> values;
};

/// Which tensors an operation takes.
enum class Takes { Any, OneDim, TwoDims };

struct Operation {
  Takes takes;
  Tensor (*apply)(const Tensor& a, State& state);
};

/// Results stay small.
constexpr int64_t kMaxElements = 600;

/// A batch of images with 2 channels, made of whatever there is.
Tensor as_images(const Tensor& a) {
  const int64_t side = 6, count = 2 * side * side;
  const Tensor flat = a.reshape({-1});
  return flat.repeat({count / flat.numel() + 1}).slice(0, 0, count).view({1, 2, side, side});
}

Tensor rotated(const Tensor& a) {
  std::vector<int64_t> order(a.dim());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>((i + 1) % order.size());
  return a.permute(order);
}

Tensor some_indices(const Tensor& a, int64_t dim, State& state) {
  return at::arange(3, a.options().dtype(at::kLong).requires_grad(false)).add(state.below(5)).remainder(a.size(dim));
}

const Operation kOperations[] = {
    // Elementwise.
    {Takes::Any, [](const Tensor& a, State&) { return a.tanh() + 0.5; }},
    {Takes::Any, [](const Tensor& a, State&) { return a.sigmoid().mul(a.cos()); }},
    {Takes::Any, [](const Tensor& a, State&) { return at::gelu(a) - at::softplus(a * 0.5); }},
    {Takes::Any, [](const Tensor& a, State&) { return at::where(a > 0, a, a * 0.2); }},
    {Takes::Any, [](const Tensor& a, State&) { return a.clamp(-1, 1).div(a.square() + 1); }},
    {Takes::Any,
     [](const Tensor& a, State& state) {
       const Tensor& b = state.any();
       return a.sizes() == b.sizes() ? a * b - b : a.mul(b.mean());
     }},
    // Views.
    {Takes::OneDim, [](const Tensor& a, State& state) { return a.transpose(0, state.dim(a)); }},
    {Takes::OneDim,
     [](const Tensor& a, State& state) {
       const int64_t dim = state.dim(a), begin = state.below(std::min<int64_t>(a.size(dim), 2));
       return a.slice(dim, begin, a.size(dim), 1 + state.below(3));
     }},
    {Takes::OneDim, [](const Tensor& a, State& state) { return a.select(0, state.below(a.size(0))); }},
    {Takes::TwoDims, [](const Tensor& a, State&) { return rotated(a); }},
    {Takes::TwoDims, [](const Tensor& a, State&) { return a.diagonal(); }},
    {Takes::Any, [](const Tensor& a, State&) { return a.reshape({-1}); }},
    {Takes::Any,
     [](const Tensor& a, State&) {
       std::vector<int64_t> sizes = a.sizes().vec();
       sizes.insert(sizes.begin(), 2);
       return a.unsqueeze(0).expand(sizes);
     }},
    {Takes::OneDim, [](const Tensor& a, State& state) { return a.unfold(state.dim(a), 1, 2); }},
    {Takes::OneDim, [](const Tensor& a, State&) { return a.flip({0}).roll(1, 0); }},
    // Writes, also through views.
    {Takes::OneDim,
     [](const Tensor& a, State& state) {
       Tensor copy = a.clone();
       copy.slice(state.dim(a), 0, INT64_MAX, 2).mul_(0.5).add_(0.1);
       return copy;
     }},
    {Takes::TwoDims,
     [](const Tensor& a, State& state) {
       Tensor copy = a.clone();
       copy.transpose(0, 1).select(0, 0).add_(state.any().mean());
       return copy;
     }},
    {Takes::TwoDims,
     [](const Tensor& a, State&) {
       Tensor copy = a.clone();
       copy.diagonal().fill_(0.3);
       return copy;
     }},
    {Takes::Any,
     [](const Tensor& a, State& state) {
       Tensor copy = at::zeros_like(a);
       copy.copy_(state.any().mean()).sub_(a);
       return copy;
     }},
    // Reductions.
    {Takes::OneDim, [](const Tensor& a, State& state) { return a.sum(state.dim(a), state.below(2) == 0); }},
    {Takes::OneDim, [](const Tensor& a, State& state) { return a.mean(state.dim(a), true) - a; }},
    {Takes::OneDim, [](const Tensor& a, State& state) { return a.var(state.dim(a), false) + a.amax(); }},
    {Takes::OneDim, [](const Tensor& a, State& state) { return at::softmax(a, state.dim(a)); }},
    {Takes::OneDim, [](const Tensor& a, State& state) { return a.cumsum(state.dim(a)).mul(0.1); }},
    {Takes::OneDim, [](const Tensor& a, State& state) { return std::get<0>(a.max(state.dim(a))); }},
    // Products and layers.
    {Takes::TwoDims, [](const Tensor& a, State&) { return at::matmul(a, a.transpose(-1, -2)).mul(0.1); }},
    {Takes::OneDim, [](const Tensor& a, State&) { return at::layer_norm(a, {a.size(-1)}, {}, {}, 0.1); }},
    {Takes::Any,
     [](const Tensor& a, State& state) {
       const int64_t groups = 1 + state.below(2);
       const Tensor kernel = as_images(state.any()).reshape({-1}).slice(0, 0, 4 / groups * 2 * 9);
       const int64_t stride = 1 + state.below(2), dilation = 1 + state.below(2);
       return at::conv2d(as_images(a), kernel.reshape({4, 2 / groups, 3, 3}) * 0.1, {}, stride, 1, dilation, groups);
     }},
    {Takes::Any,
     [](const Tensor& a, State& state) {
       return at::max_pool2d(as_images(a) + at::linspace(0, 1, 72, a.options()).view({1, 2, 6, 6}), 2 + state.below(2),
                             1 + state.below(2), 1);
     }},
    {Takes::Any,
     [](const Tensor& a, State& state) {
       return at::avg_pool2d(as_images(a), 2 + state.below(2), 1 + state.below(2), 1, state.below(2) == 0);
     }},
    // Indexing.
    {Takes::OneDim,
     [](const Tensor& a, State& state) {
       const int64_t dim = state.dim(a);
       return a.index_select(dim, some_indices(a, dim, state));
     }},
    {Takes::OneDim, [](const Tensor& a, State& state) { return at::index(a, {some_indices(a, 0, state)}); }},
    {Takes::OneDim,
     [](const Tensor& a, State& state) {
       const Tensor index = some_indices(a, 0, state);
       return a.index_add(0, index, a.index_select(0, index), 0.5);
     }},
    {Takes::OneDim, [](const Tensor& a, State& state) { return std::get<0>(a.sort(state.dim(a))); }},
    {Takes::OneDim,
     [](const Tensor& a, State& state) {
       return at::cat({a, a * 2}, state.dim(a));
     }},
    {Takes::TwoDims, [](const Tensor& a, State&) { return a.triu() + a.tril(-1) * 2; }},
};

bool fits(Takes takes, const Tensor& a) {
  return a.dim() >= (takes == Takes::Any ? 0 : takes == Takes::OneDim ? 1 : 2) && a.numel() > 0 && a.dim() < 6;
}

void step(State& state) {
  const Tensor a = state.any();
  const Operation& operation = kOperations[state.below(static_cast<int64_t>(std::size(kOperations)))];
  if (!fits(operation.takes, a)) return;
  const Tensor result = operation.apply(a, state);
  state.values.push_back(result.numel() > kMaxElements || result.numel() == 0 ? result.sum() * 0.01 : result);
}

}  // namespace

std::vector<Tensor> random_program_inputs() {
  return {at::randn({4, 6}, at::kDouble), at::randn({3, 4, 2}, at::kDouble), at::randn({12}, at::kDouble)};
}

std::vector<Tensor> run_random_program(uint32_t seed, const std::vector<Tensor>& inputs, const PlaceInput& place) {
  State state(seed);
  std::vector<Tensor> leaves;
  for (const Tensor& input : inputs) {
    leaves.push_back(place(input).detach().requires_grad_());
    state.values.push_back(leaves.back() * 1.0);
  }
  const int64_t steps = 6 + state.below(9);
  for (int64_t i = 0; i < steps; ++i) step(state);
  Tensor total = state.values.back().sum();
  for (const Tensor& value : state.values) total = total + value.square().mean() * 0.1;
  std::vector<Tensor> results{total.detach()};
  for (Tensor& gradient : torch::autograd::grad({total}, leaves)) results.push_back(gradient);
  return results;
}

}  // namespace lockstep::xla::test
