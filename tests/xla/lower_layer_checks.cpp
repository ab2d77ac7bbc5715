#include "tests/xla/lower_checks.h"

/// Activations, products, convolutions, norms, losses.
namespace lockstep::xla::test {
namespace {

using at::Tensor;
constexpr auto kDouble = at::kDouble;

/// Adds a check of one function of one tensor, for values on both sides of its corners.
void add(Checks& checks, const char* name, Tensor (*call)(const Tensor&)) {
  checks.push_back({name,
                    {at::linspace(-4, 4, 24, kDouble).add_(0.013).view({4, 6}).requires_grad_()},
                    [call](const Tensors& in) -> Tensors { return {call(in[0])}; }});
}

struct ConvolutionCase {
  int64_t dims, kernel, stride, dilation;
};

/// Plain and transposed, with and without groups.
void add_convolutions(Checks& checks, const ConvolutionCase& given) {
  const auto [dims, kernel, stride, dilation] = given;
  for (int64_t groups : {1, 2}) {
    for (bool transposed : {false, true}) {
      std::vector<int64_t> input{2, 4}, weight{transposed ? 4 : 6, (transposed ? 6 : 4) / groups};
      for (int64_t i = 0; i < dims; ++i) {
        input.push_back(5 + i);
        weight.push_back(kernel);
      }
      const std::vector<int64_t> strides(dims, stride), padding(dims, kernel / 2), dilations(dims, dilation);
      const std::vector<int64_t> more(dims, transposed ? stride - 1 : 0);
      const int64_t num_groups = groups;
      checks.push_back(
          {transposed ? "transposed convolution" : "convolution",
           {random(input), random(weight), random({6})},
           [=](const Tensors& in) -> Tensors {
             return {at::convolution(in[0], in[1], in[2], strides, padding, dilations, transposed, more, num_groups)};
           }});
    }
  }
}

/// Every combination in one dimension, where programs are small; in more dimensions each parameter once.
void add_convolutions(Checks& checks) {
  for (int64_t stride : {1, 2}) {
    add_convolutions(checks, {1, 1, stride, 1});
    for (int64_t dilation : {1, 2}) add_convolutions(checks, {1, 3, stride, dilation});
  }
  add_convolutions(checks, {2, 3, 2, 1});
  add_convolutions(checks, {2, 3, 1, 2});
  add_convolutions(checks, {3, 3, 2, 2});
}

struct RecurrentSizes {
  int64_t layers = 1;
  bool bidirectional = false;
  bool batch_first = false;
  bool has_biases = true;
  int64_t length = 6;
  /// Of packed sequences.
  std::vector<int64_t> lengths{};
};

/// Inputs: the sequence, the first states, then weights and biases.
Check recurrent_check(const std::string& kind, const RecurrentSizes& sizes) {
  constexpr int64_t kBatch = 2, kInput = 3, kHidden = 4;
  const int64_t gates = (kind == "lstm" ? 4 : kind == "gru" ? 3 : 1) * kHidden;
  const int64_t directions = sizes.bidirectional ? 2 : 1;
  const size_t states = kind == "lstm" ? 2 : 1;
  Tensors inputs{sizes.batch_first ? random({kBatch, sizes.length, kInput}) : random({sizes.length, kBatch, kInput})};
  for (size_t i = 0; i < states; ++i) inputs.push_back(random({sizes.layers * directions, kBatch, kHidden}));
  for (int64_t layer = 0; layer < sizes.layers; ++layer) {
    for (int64_t direction = 0; direction < directions; ++direction) {
      inputs.push_back(random({gates, layer == 0 ? kInput : kHidden * directions}));
      inputs.push_back(random({gates, kHidden}));
      for (int i = 0; i < 2 && sizes.has_biases; ++i) inputs.push_back(random({gates}));
    }
  }
  const auto run = [=](const Tensors& in) -> Tensors {
    const Tensors weights(in.begin() + 1 + static_cast<int64_t>(states), in.end());
    const auto call = [&](auto function, const auto& first) {
      if (sizes.lengths.empty()) {
        return function(in[0], first, weights, sizes.has_biases, sizes.layers, 0.0, false, sizes.bidirectional,
                        sizes.batch_first);
      }
      const auto [data, batch_sizes] = at::_pack_padded_sequence(in[0], at::tensor(sizes.lengths), false);
      return function(data, batch_sizes, first, weights, sizes.has_biases, sizes.layers, 0.0, false,
                      sizes.bidirectional);
    };
    if (kind == "lstm") {
      const Tensors first{in[1], in[2]};
      const auto [y, h, c] = call([](auto&&... all) { return at::lstm(all...); }, at::TensorList(first));
      return {y, h, c};
    }
    const auto [y, h] = kind == "gru"        ? call([](auto&&... all) { return at::gru(all...); }, in[1])
                        : kind == "rnn_tanh" ? call([](auto&&... all) { return at::rnn_tanh(all...); }, in[1])
                                             : call([](auto&&... all) { return at::rnn_relu(all...); }, in[1]);
    return {y, h};
  };
  return {kind, inputs, run};
}

Check packed_check(const std::string& kind, RecurrentSizes sizes) {
  sizes.lengths = {sizes.length, std::max<int64_t>(sizes.length - 2, 1)};
  Check check = recurrent_check(kind, sizes);
  check.name = "packed " + kind;
  return check;
}

}  // namespace

Checks activation_checks() {
  Checks checks;
  add(checks, "threshold", [](const Tensor& x) { return at::threshold(x, 0.1, 20); });
  add(checks, "leaky_relu", [](const Tensor& x) { return at::leaky_relu(x, 0.1); });
  add(checks, "hardtanh", [](const Tensor& x) { return at::hardtanh(x, -0.7, 0.9); });
  add(checks, "silu", [](const Tensor& x) { return at::silu(x); });
  add(checks, "gelu", [](const Tensor& x) { return at::gelu(x); });
  add(checks, "gelu tanh", [](const Tensor& x) { return at::gelu(x, "tanh"); });
  add(checks, "softplus", [](const Tensor& x) { return at::softplus(x, 2, 3); });
  add(checks, "mish", [](const Tensor& x) { return at::mish(x); });
  add(checks, "hardswish", [](const Tensor& x) { return at::hardswish(x); });
  add(checks, "hardsigmoid", [](const Tensor& x) { return at::hardsigmoid(x); });
  add(checks, "hardshrink", [](const Tensor& x) { return at::hardshrink(x, 0.4); });
  add(checks, "softshrink", [](const Tensor& x) { return at::softshrink(x, 0.4); });
  add(checks, "elu", [](const Tensor& x) { return at::elu(x, 1.3, 0.7, 1.1); });
  add(checks, "elu in place", [](const Tensor& x) {
    Tensor y = x.mul(2);
    return at::elu_(y, 1.3);
  });
  add(checks, "selu celu", [](const Tensor& x) { return at::selu(x) + at::celu(x, 1.2); });
  add(checks, "log_sigmoid", [](const Tensor& x) { return at::log_sigmoid(x); });
  add(checks, "glu", [](const Tensor& x) { return at::glu(x, 0) * at::glu(x, 0); });
  add(checks, "softmax of a scalar", [](const Tensor& x) { return at::softmax(x.sum(), 0); });
  checks.push_back({"prelu", {random({3, 4, 2}), random({4})}, [](const Tensors& in) -> Tensors {
                      return {at::prelu(in[0], in[1])};
                    }});
  checks.push_back({"prelu of one slope", {random({3, 4}), random({1})}, [](const Tensors& in) -> Tensors {
                      return {at::prelu(in[0], in[1])};
                    }});
  return checks;
}

Checks layer_checks() {
  Checks checks;
  const auto check = [&](const char* name, Tensors inputs, std::function<Tensors(const Tensors&)> run) {
    checks.push_back({name, std::move(inputs), std::move(run)});
  };
  check("mm", {random({4, 5}), random({5, 3})}, [](const Tensors& in) -> Tensors { return {in[0].mm(in[1])}; });
  check("bmm", {random({2, 4, 5}), random({2, 5, 3})}, [](const Tensors& in) -> Tensors { return {in[0].bmm(in[1])}; });
  check("mv dot", {random({4, 5}), random({5})}, [](const Tensors& in) -> Tensors {
    return {in[0].mv(in[1]), in[1].dot(in[1]), at::vdot(in[1], in[1])};
  });
  check("addmm", {random({3}), random({4, 5}), random({5, 3})},
        [](const Tensors& in) -> Tensors { return {at::addmm(in[0], in[1], in[2], 0.5, 2)}; });
  check("addmm without beta", {random({3}), random({4, 5}), random({5, 3})},
        [](const Tensors& in) -> Tensors { return {at::addmm(in[0], in[1], in[2], 0, 1)}; });
  check("baddbmm", {random({2, 4, 3}), random({2, 4, 5}), random({2, 5, 3})},
        [](const Tensors& in) -> Tensors { return {at::baddbmm(in[0], in[1], in[2], 0.5, 2)}; });
  check("addbmm", {random({4, 3}), random({2, 4, 5}), random({2, 5, 3})},
        [](const Tensors& in) -> Tensors { return {at::addbmm(in[0], in[1], in[2], 0.5, 2)}; });
  check("addmv addr", {random({4}), random({4, 5}), random({5})}, [](const Tensors& in) -> Tensors {
    return {at::addmv(in[0], in[1], in[2], 0.5, 2), at::addr(in[1], in[0], in[2], 0.5, 2)};
  });
  check("integer products", {indices({4, 5}, 9), indices({5, 3}, 9)},
        [](const Tensors& in) -> Tensors { return {in[0].mm(in[1])}; });
  check("matmul", {random({2, 3, 4, 5}), random({3, 5, 2})},
        [](const Tensors& in) -> Tensors { return {at::matmul(in[0], in[1])}; });
  check("einsum outer", {random({2, 3, 4}), random({4, 3, 5})}, [](const Tensors& in) -> Tensors {
    return {at::einsum("bij,jik->bk", {in[0], in[1]}), at::outer(in[0].flatten(), in[1].flatten())};
  });
  check("bilinear", {random({4, 3}), random({4, 2}), random({5, 3, 2})},
        [](const Tensors& in) -> Tensors { return {at::bilinear(in[0], in[1], in[2], {})}; });
  add_convolutions(checks);
  for (bool training : {true, false}) {
    check("batch_norm", {random({4, 3, 5}), random({3}), random({3}), at::randn({3}, kDouble), at::rand({3}, kDouble)},
          [=](const Tensors& in) -> Tensors {
            const Tensor mean = in[3].clone(), variance = in[4].clone() + 0.5;
            const Tensor y = at::batch_norm(in[0], in[1], in[2], mean, variance, training, 0.2, 1e-5, false);
            return {y, mean, variance};
          });
  }
  check("batch_norm of 2", {random({4, 3}), random({3})}, [](const Tensors& in) -> Tensors {
    return {at::batch_norm(in[0], in[1], {}, {}, {}, true, 0.2, 1e-5, false)};
  });
  check("layer_norm", {random({4, 3, 5}), random({3, 5}), random({3, 5})}, [](const Tensors& in) -> Tensors {
    return {at::layer_norm(in[0], {3, 5}, in[1], in[2])};
  });
  check("layer_norm without weights", {random({4, 5})},
        [](const Tensors& in) -> Tensors { return {at::layer_norm(in[0], {5})}; });
  check("group_norm", {random({4, 6, 5}), random({6}), random({6})},
        [](const Tensors& in) -> Tensors { return {at::group_norm(in[0], 2, in[1], in[2])}; });
  check("group_norm without weights", {random({4, 6, 2, 2})},
        [](const Tensors& in) -> Tensors { return {at::group_norm(in[0], 3)}; });
  check("instance_norm", {random({4, 3, 5})}, [](const Tensors& in) -> Tensors {
    return {at::instance_norm(in[0], {}, {}, {}, {}, true, 0.1, 1e-5, false)};
  });
  for (double p : {0.0, 1.0, 1.5, 2.0, 3.0, double{INFINITY}}) {
    check("cdist", {random({2, 4, 3}), random({2, 5, 3})},
          [=](const Tensors& in) -> Tensors { return {at::cdist(in[0], in[1], p)}; });
  }
  check("dropout with a mask", {random({4, 3}), at::rand({4, 3}) > 0.5},
        [](const Tensors& in) -> Tensors { return {at::native_dropout_backward(in[0].detach(), in[1], 2)}; });
  // Gradients of the CPU are sparse where that is asked for; those of XLA never are.
  check("sparse embedding", {random({5, 3}), indices({4}, 5)}, [](const Tensors& in) -> Tensors {
    return {at::embedding(in[0], in[1], -1, false, /*sparse=*/!in[0].is_cpu())};
  });
  check("lstm",
        {random({5, 2, 3}), random({1, 2, 4}), random({1, 2, 4}), random({16, 3}), random({16, 4}), random({16}),
         random({16})},
        [](const Tensors& in) -> Tensors {
          const auto [y, h, c] =
              at::lstm(in[0], {in[1], in[2]}, {in[3], in[4], in[5], in[6]}, true, 1, 0, false, false, false);
          return {y, h, c};
        });
  check("gru", {random({5, 2, 3}), random({1, 2, 4}), random({12, 3}), random({12, 4}), random({12}), random({12})},
        [](const Tensors& in) -> Tensors {
          const auto [y, h] = at::gru(in[0], in[1], {in[2], in[3], in[4], in[5]}, true, 1, 0, false, false, false);
          return {y, h};
        });
  for (const char* kind : {"lstm", "gru", "rnn_tanh", "rnn_relu"}) {
    for (const RecurrentSizes& sizes : {RecurrentSizes{},
                                        {.layers = 2, .bidirectional = true},
                                        {.layers = 2, .batch_first = true, .has_biases = false},
                                        {.bidirectional = true, .batch_first = true},
                                        {.length = 1}}) {
      checks.push_back(recurrent_check(kind, sizes));
      if (!sizes.batch_first) checks.push_back(packed_check(kind, sizes));
    }
  }
  for (at::ScalarType dtype : {at::kBFloat16, at::kFloat}) {
    check("layers of narrow dtypes", {at::randn({8, 64}).to(dtype)}, [](const Tensors& in) -> Tensors {
      return {at::layer_norm(in[0], {64}), at::softmax(in[0], 1), at::silu(in[0]), in[0].sum(), in[0].mean(1)};
    });
  }
  return checks;
}

Checks loss_checks() {
  Checks checks;
  const auto check = [&](const char* name, Tensors inputs, std::function<Tensors(const Tensors&)> run) {
    checks.push_back({name, std::move(inputs), std::move(run)});
  };
  const Tensor labels = indices({5}, 4), map = indices({3, 2, 2}, 4), weights = at::rand({4}, kDouble) + 0.5;
  for (int64_t reduction : {0, 1, 2}) {
    for (int64_t ignored : {-100, 1}) {
      for (bool weighted : {false, true}) {
        check("nll_loss", {random({5, 4}), labels, weights}, [=](const Tensors& in) -> Tensors {
          return {at::nll_loss(at::log_softmax(in[0], 1), in[1], weighted ? in[2] : Tensor(), reduction, ignored)};
        });
        check("nll_loss2d", {random({3, 4, 2, 2}), map, weights}, [=](const Tensors& in) -> Tensors {
          return {at::nll_loss2d(at::log_softmax(in[0], 1), in[1], weighted ? in[2] : Tensor(), reduction, ignored)};
        });
      }
    }
    // Their mean asks LibTorch which targets are ignored.
    check("cross_entropy with smoothing", {random({5, 4}), labels}, [=](const Tensors& in) -> Tensors {
      return {at::cross_entropy_loss(in[0], in[1], {}, reduction == 1 ? 2 : reduction, -100, 0.1)};
    });
    check("nll_loss of one", {random({4}), at::scalar_tensor(2, at::kLong)},
          [=](const Tensors& in) -> Tensors { return {at::nll_loss(in[0], in[1], {}, reduction)}; });
    const Tensors pair{random({5, 4}), random({5, 4})};
    check("mse l1 smooth_l1 huber", pair, [=](const Tensors& in) -> Tensors {
      return {at::mse_loss(in[0], in[1], reduction), at::l1_loss(in[0], in[1], reduction),
              at::smooth_l1_loss(in[0], in[1], reduction, 0.7), at::huber_loss(in[0], in[1], reduction, 0.7)};
    });
    check("binary cross entropies", {random({5, 4}), at::rand({5, 4}, kDouble), weights},
          [=](const Tensors& in) -> Tensors {
            return {at::binary_cross_entropy(in[0].sigmoid(), in[1], {}, reduction),
                    at::binary_cross_entropy(in[0].sigmoid(), in[1], in[2], reduction),
                    at::binary_cross_entropy_with_logits(in[0], in[1], {}, {}, reduction),
                    at::binary_cross_entropy_with_logits(in[0], in[1], in[2], in[2], reduction)};
          });
    check("kl_div soft_margin", {random({5, 4}), at::rand({5, 4}, kDouble)}, [=](const Tensors& in) -> Tensors {
      return {at::kl_div(at::log_softmax(in[0], 1), in[1], reduction),
              at::soft_margin_loss(in[0], in[1].sign(), reduction)};
    });
  }
  return checks;
}

}  // namespace lockstep::xla::test
