#pragma once

#include <vector>

#include <c10/util/ArrayRef.h>

#include "lockstep/xla/graph/ops/build.h"
#include "lockstep/xla/tensor/aten_call.h"

/// Internal: how functions of LibTorch become graphs. Each function has one row in the table of its family. The
/// in-place form (`relu_`) and the form with output arguments (`add.out`) are derived from the functional one.
namespace lockstep::xla {

/// One value for each tensor that the function returns; null for an undefined tensor.
using Values = c10::SmallVector<Value, 3>;

struct Lowering {
  /// "add.Tensor": name and overload.
  const char* name;
  Values (*emit)(const AtenCall&);
  /// Whether it covers a call; other calls run on the CPU. Null if it covers all.
  bool (*covers)(const AtenCall&) = nullptr;
};

using Lowerings = c10::ArrayRef<Lowering>;
Lowerings arithmetic_lowerings();
Lowerings elementary_lowerings();
Lowerings logic_lowerings();
Lowerings activation_lowerings();
Lowerings reduce_lowerings();
Lowerings softmax_lowerings();
Lowerings matmul_lowerings();
Lowerings convolution_lowerings();
Lowerings pool_lowerings();
Lowerings resize_lowerings();
Lowerings padding_lowerings();
Lowerings column_lowerings();
Lowerings batch_norm_lowerings();
Lowerings norm_lowerings();
Lowerings loss_lowerings();
Lowerings distance_lowerings();
Lowerings index_lowerings();
Lowerings scatter_lowerings();
Lowerings sort_lowerings();
Lowerings shape_lowerings();
Lowerings factory_lowerings();
Lowerings random_lowerings();

/// The rows of all families.
LOCKSTEP_API std::vector<Lowering> all_lowerings();

/// Negative dimensions count from the end.
int64_t wrap_dim(int64_t dim, int64_t rank);
/// All dimensions if `dims` is empty; none for scalars.
std::vector<int64_t> wrap_dims(std::vector<int64_t> dims, int64_t rank);
std::vector<int64_t> all_dims(const Value& a);
int64_t product(Ints shape, Ints dims);
/// The dtype itself, or LibTorch's default for integers.
Dtype floating(Dtype dtype);
/// `count` values; a single value is repeated.
std::vector<int64_t> expanded(std::vector<int64_t> values, size_t count);

/// Whether the operands of a product are rounded to bfloat16: both are float32, and `narrows_products` says so.
bool narrows(const Value& a, const Value& b);

/// Replaces dimension `dim` of `a`, of size n, by its product with `matrix` [m, n].
Value apply_along(const Value& a, const Value& matrix, int64_t dim);

}  // namespace lockstep::xla
