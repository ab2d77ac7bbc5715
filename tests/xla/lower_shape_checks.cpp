#include <iterator>
#include <utility>

#include "tests/xla/lower_checks.h"

/// Reductions, pooling, resizing, indexing, shapes.
namespace lockstep::xla::test {
namespace {

using at::Tensor;

struct List {
  Checks checks;
  void operator()(const char* name, Tensors inputs, std::function<Tensors(const Tensors&)> run) {
    checks.push_back({name, std::move(inputs), std::move(run)});
  }
};

}  // namespace

Checks reduction_checks() {
  List check;
  check("sums", {random({3, 4, 5})}, [](const Tensors& in) -> Tensors {
    const Tensor& x = in[0];
    return {x.sum(),   x.sum(0),         x.sum({-1, 0}, true),       x.mean(),
            x.mean(1), x.mean(-1, true), x.detach().sum(at::kFloat), x.nansum({1}, false)};
  });
  // The gradient of the product of all asks LibTorch where zeros are.
  check("products", {random({3, 4}).detach()}, [](const Tensors& in) -> Tensors {
    return {in[0].prod(), in[0].prod(1), in[0].prod(0, true)};
  });
  check("of nothing", {at::empty({0, 3}, at::kDouble)}, [](const Tensors& in) -> Tensors {
    return {in[0].sum(), in[0].mean(), in[0].prod(), in[0].sum(0), in[0].cumsum(0), in[0].var(0), in[0].any()};
  });
  check("of a scalar", {random({})}, [](const Tensors& in) -> Tensors {
    const Tensor& x = in[0];
    return {x.sum(), x.mean(), x.sum(0), x.amax(), x.argmax(), std::get<0>(x.max(0)), x.cumsum(0), x.logsumexp(0)};
  });
  check("extremes", {random({3, 4, 5})}, [](const Tensors& in) -> Tensors {
    const Tensor& x = in[0];
    const auto [values, places] = x.max(1);
    const auto [least, least_places] = x.min(-1, true);
    return {x.amax({1, 2}),
            x.amin({0}, true),
            x.max(),
            x.min(),
            values,
            places,
            least,
            least_places,
            x.argmax(),
            x.argmax(1),
            x.argmin(2, true),
            std::get<0>(at::aminmax(x.detach(), 0))};
  });
  check("ties", {at::tensor({1, 3, 3, 2, 2, 2, 2, 2}).view({2, 4})}, [](const Tensors& in) -> Tensors {
    return {in[0].argmax(1), in[0].argmin(1), std::get<1>(in[0].max(0))};
  });
  check("any all", {indices({3, 4}, 2)}, [](const Tensors& in) -> Tensors {
    return {in[0].any(), in[0].all(), in[0].any(0), in[0].all(-1, true), at::count_nonzero(in[0], at::IntArrayRef{0})};
  });
  check("variances", {random({3, 4, 5})}, [](const Tensors& in) -> Tensors {
    const Tensor& x = in[0];
    const auto [variance, mean] = at::var_mean(x, {1}, false);
    const auto [deviation, mean2] = at::std_mean(x, at::IntArrayRef{0, 2}, true, true);
    return {x.var(),  x.std(), x.var({1}, false), x.std(at::IntArrayRef{0, 2}, true, true),
            variance, mean,    deviation,         mean2};
  });
  check("norms", {random({3, 4})}, [](const Tensors& in) -> Tensors {
    const Tensor& x = in[0];
    return {x.norm(),
            x.norm(1),
            x.norm(3),
            x.norm(2, {1}, true),
            x.norm(2, at::kDouble),
            x.norm(2, {0}, false, at::kDouble),
            at::linalg_vector_norm(x, INFINITY),
            at::linalg_vector_norm(x, 2.5, {1})};
  });
  check("count as a norm", {random({3, 4}).detach()},
        [](const Tensors& in) -> Tensors { return {at::linalg_vector_norm(in[0].relu(), 0)}; });
  check("scans", {random({3, 4})}, [](const Tensors& in) -> Tensors {
    return {in[0].cumsum(0), in[0].cumsum(-1), in[0].cumprod(1), in[0].detach().cumsum(0, at::kFloat)};
  });
  check("softmaxes", {random({3, 4, 2})}, [](const Tensors& in) -> Tensors {
    return {at::softmax(in[0], 1), at::log_softmax(in[0], -1), at::logsumexp(in[0], at::IntArrayRef{0, 2}, true)};
  });
  check("trace", {random({3, 4})}, [](const Tensors& in) -> Tensors { return {in[0].trace()}; });
  return check.checks;
}

Checks pooling_checks() {
  List check;
  // Windows that overlap, that overlap by strides, that adjoin, and that have gaps; the first with every combination of
  // padding and rounding, the others with half of them.
  constexpr std::pair<int64_t, int64_t> kKernelsAndStrides[] = {{3, 2}, {2, 1}, {3, 3}, {2, 3}};
  for (int64_t i = 0; i < static_cast<int64_t>(std::size(kKernelsAndStrides)); ++i) {
    const int64_t kernel = kKernelsAndStrides[i].first, stride = kKernelsAndStrides[i].second;
    for (int64_t padding : {0, 1}) {
      for (bool round_up : {false, true}) {
        if (i > 0 && (i + padding + (round_up ? 1 : 0)) % 2 != 0) continue;
        for (int64_t dilation : {1, 2}) {
          check("max_pool2d", {random({2, 2, 7, 6})}, [=](const Tensors& in) -> Tensors {
            const auto [y, places] = at::max_pool2d_with_indices(in[0], kernel, stride, padding, dilation, round_up);
            return {y, places};
          });
        }
        check("avg_pool2d", {random({2, 2, 7, 6})}, [=](const Tensors& in) -> Tensors {
          return {at::avg_pool2d(in[0], kernel, stride, padding, round_up, true),
                  at::avg_pool2d(in[0], {kernel, 2}, stride, {padding, 0}, round_up, false),
                  at::avg_pool2d(in[0][0], kernel, stride, padding, round_up, false, 5)};
        });
      }
    }
  }
  check("3 dimensions", {random({2, 3, 4, 5, 6})}, [](const Tensors& in) -> Tensors {
    return {at::max_pool3d(in[0], 2), at::avg_pool3d(in[0], 2, 1, 1, true, false)};
  });
  check("1 dimension", {random({2, 3, 9})}, [](const Tensors& in) -> Tensors {
    return {at::max_pool1d(in[0], 2), at::avg_pool1d(in[0], 3, 2, 1)};
  });
  check("adaptive averages", {random({2, 3, 8, 9})}, [](const Tensors& in) -> Tensors {
    return {at::adaptive_avg_pool2d(in[0], {1, 1}), at::adaptive_avg_pool2d(in[0], {4, 3}),
            at::adaptive_avg_pool2d(in[0], {3, 5}), at::adaptive_avg_pool2d(in[0], {8, 2}),
            at::adaptive_avg_pool1d(in[0][0], {4}), at::adaptive_avg_pool3d(in[0], {2, 3, 4})};
  });
  for (const auto& size : {std::vector<int64_t>{8, 6}, {7, 11}, {3, 2}, {4, 3}}) {
    check("upsample 2", {random({2, 3, 4, 3})}, [=](const Tensors& in) -> Tensors {
      return {at::upsample_nearest2d(in[0], size), at::_upsample_nearest_exact2d(in[0], size),
              at::upsample_bilinear2d(in[0], size, false), at::upsample_bilinear2d(in[0], size, true)};
    });
  }
  check("upsample by scale", {random({2, 3, 4, 3})}, [](const Tensors& in) -> Tensors {
    return {at::upsample_nearest2d(in[0], {10, 7}, 2.6, 2.4), at::upsample_bilinear2d(in[0], {10, 7}, false, 2.6, 2.4)};
  });
  check("upsample 1 and 3", {random({2, 3, 4}), random({1, 2, 2, 3, 4})}, [](const Tensors& in) -> Tensors {
    return {at::upsample_nearest1d(in[0], {7}),
            at::_upsample_nearest_exact1d(in[0], {9}),
            at::upsample_linear1d(in[0], {6}, true),
            at::upsample_nearest3d(in[1], {4, 5, 4}),
            at::_upsample_nearest_exact3d(in[1], {4, 5, 4}),
            at::upsample_trilinear3d(in[1], {4, 5, 4}, false)};
  });
  check("columns", {random({2, 3, 6, 5}), random({2, 12, 12})}, [](const Tensors& in) -> Tensors {
    return {at::im2col(in[0], {2, 3}, {1, 2}, {1, 0}, {2, 1}), at::im2col(in[0][0], {2, 2}, {1, 1}, {0, 0}, {1, 1}),
            at::col2im(in[1], {4, 5}, {2, 2}, {1, 1}, {0, 0}, {1, 1}),
            at::col2im(in[1], {3, 6}, {2, 2}, {1, 1}, {1, 0}, {1, 2}).sum()};
  });
  check("paddings", {random({2, 3, 4, 5})}, [](const Tensors& in) -> Tensors {
    return {at::constant_pad_nd(in[0], {1, 2, -1, 0}, 1.5),  at::reflection_pad1d(in[0][0], {2, 1}),
            at::reflection_pad2d(in[0], {2, 1, 0, 3}),       at::reflection_pad3d(in[0], {1, 0, 2, 1, 1, 2}),
            at::replication_pad1d(in[0][0], {2, 1}),         at::replication_pad2d(in[0], {2, 1, 0, 3}),
            at::replication_pad3d(in[0], {1, 0, 2, 1, 1, 2})};
  });
  return check.checks;
}

Checks indexing_checks() {
  List check;
  for (int64_t padding : {-1, 2}) {
    check("embedding", {random({7, 4}), indices({2, 3}, 7)},
          [=](const Tensors& in) -> Tensors { return {at::embedding(in[0], in[1], padding)}; });
  }
  check("index_select", {random({4, 5, 3}), indices({6}, 4)}, [](const Tensors& in) -> Tensors {
    return {in[0].index_select(1, in[1]), in[0].index_select(0, in[1]), in[0].index_select(-1, in[1].remainder(3))};
  });
  check("gather", {random({4, 5, 3}), indices({4, 2, 3}, 5)}, [](const Tensors& in) -> Tensors {
    return {in[0].gather(1, in[1]), in[0].gather(0, in[1].remainder(4)), in[0].sum().gather(0, in[1].sum() * 0)};
  });
  check("take", {random({4, 5}), indices({3, 2}, 20)}, [](const Tensors& in) -> Tensors {
    return {in[0].take(in[1]), in[0].take(in[1] - 20)};
  });
  check("index", {random({4, 5, 3, 2}), indices({2, 3}, 3), indices({3}, 2)}, [](const Tensors& in) -> Tensors {
    const Tensor &x = in[0], &i = in[1], &j = in[2];
    return {at::index(x, {i}),
            at::index(x, {i, j}),
            at::index(x, {{}, i - 3}),
            at::index(x, {{}, i, j}),
            at::index(x, {i, {}, j}),
            at::index(x, {{}, i, {}, j}),
            at::index(x, {{}, i.to(at::kInt).to(at::kLong), j})};
  });
  check("index_put", {random({4, 5, 3}), indices({2, 3}, 4), indices({3}, 3), random({2, 3, 5})},
        [](const Tensors& in) -> Tensors {
          const Tensor &x = in[0], &i = in[1], &j = in[2];
          return {at::index_put(x, {i, {}, j}, in[3], true),
                  at::index_put(x, {{}, i}, in[3].sum(), true),
                  at::index_put(x, {j.slice(0, 0, 1)}, in[3].sum() * 2),
                  at::index_put(x, {x > 0}, in[3].detach().sum()),
                  at::index_put(x, {{}, {}, x.select(0, 0).select(0, 0) > 0}, in[3].detach().mean(), true),
                  at::index_put(x * 1, {{}, i}, in[3].sum(), true).index_put_({{}, j}, in[3].sum())};
        });
  check("scatter", {random({4, 5}), at::randperm(10).remainder(5).view({2, 5}), random({3, 5})},
        [](const Tensors& in) -> Tensors {
          const Tensor &x = in[0], &i = in[1], s = in[2].slice(0, 0, 2);
          const Tensor distinct = at::arange(5, i.options()).expand({2, 5}).contiguous();
          return {x.scatter(1, distinct, s),
                  x.scatter(1, i, 2.5),
                  x.scatter_add(1, i, s),
                  x.scatter_add(0, i.remainder(4), s),
                  x.detach().scatter(1, i, in[2].detach(), "add"),
                  x.detach().scatter(1, i, 2.5, "multiply"),
                  x.scatter_reduce(1, i, s, "sum", true),
                  x.detach().scatter_reduce(1, i, s.detach(), "amax", true)};
        });
  check("slices by index", {random({4, 5}), at::tensor({3, 1}, at::kLong), random({2, 5}), random({4, 2})},
        [](const Tensors& in) -> Tensors {
          const Tensor &x = in[0], &i = in[1];
          return {x.index_add(0, i, in[2], 0.5), x.index_add(1, i, in[3]), x.index_copy(0, i, in[2]),
                  x.index_fill(1, i, 2.5), x.index_fill(0, i, in[2].detach().sum())};
        });
  check("sorts", {random({4, 6})}, [](const Tensors& in) -> Tensors {
    const auto [values, order] = in[0].sort(1);
    const auto [falling, falling_order] = at::sort(in[0], true, 0, true);
    const auto [top, top_places] = in[0].topk(3, 1);
    const auto [low, low_places] = in[0].topk(2, 0, false);
    const auto [third, third_place] = in[0].kthvalue(3, 1, true);
    return {values,
            order,
            falling,
            falling_order,
            top,
            top_places,
            low,
            low_places,
            third,
            third_place,
            in[0].argsort(int64_t{0})};
  });
  check("windows", {random({3, 8})}, [](const Tensors& in) -> Tensors {
    return {in[0].unfold(1, 3, 2) * 2, in[0].unfold(0, 2, 1).sum(0)};
  });
  return check.checks;
}

Checks shape_checks() {
  List check;
  check("joins", {random({2, 3}), random({4, 3}), at::empty({0}, at::kDouble)}, [](const Tensors& in) -> Tensors {
    return {at::cat({in[0], in[1]}), at::cat({in[0], in[2], in[1]}, 0), at::stack({in[0], in[0]}, 1),
            at::hstack({in[0], in[0]})};
  });
  check("triangles and turns", {random({4, 5})}, [](const Tensors& in) -> Tensors {
    const Tensor& x = in[0];
    return {x.triu(1), x.tril(-1),       x.flip({0, 1}), x.roll(2, 1),       x.roll(-3, 0),    x.roll({1, 2}, {0, 1}),
            x.roll(7), x.repeat({2, 3}), x.clone(),      x.t().contiguous(), at::diag_embed(x)};
  });
  check("factories", {random({4})}, [](const Tensors& in) -> Tensors {
    const auto options = in[0].options().requires_grad(false);
    return {at::arange(5, options),
            at::arange(2, 9, options),
            at::arange(1, 2, 0.1, options),
            at::arange(7, options.dtype(at::kLong)),
            at::arange(9, 2, -3, options.dtype(at::kInt)),
            at::linspace(0, 1, 7, options),
            at::linspace(3, -2, 1, options),
            at::eye(3, options),
            at::eye(2, 4, options),
            at::full({2, 3}, 2.5, options),
            at::ones_like(in[0]),
            at::one_hot(at::arange(3, options.dtype(at::kLong)), 4)};
  });
  return check.checks;
}

}  // namespace lockstep::xla::test
