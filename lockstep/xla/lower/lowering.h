#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

#include "lockstep/xla/graph/build.h"

/// Inside: how functions of LibTorch become graphs. One row of a table for each function, in files by family; forms in
/// place (`relu_`) and with results given (`add.out`) are derived from the functional one.
namespace lockstep::xla {

/// A call that is traced: its arguments, in the order of the function's schema.
class Call {
 public:
  Call(c10::IValue* arguments, int place) : arguments_(arguments), place_(place) {}

  /// The device, as LibTorch numbers it, that the call computes on.
  int place() const { return place_; }
  const c10::IValue& argument(int i) const { return arguments_[i]; }

  bool is_none(int i) const { return arguments_[i].isNone(); }
  /// Whether argument i is a tensor, and defined.
  bool has(int i) const { return arguments_[i].isTensor() && arguments_[i].toTensor().defined(); }
  const at::Tensor& tensor(int i) const { return arguments_[i].toTensor(); }
  std::vector<at::Tensor> tensors(int i) const { return arguments_[i].toTensorVector(); }
  /// The value of a tensor: of this device; a CPU tensor is sent, or a number if it has no dimensions.
  Value value(const at::Tensor& tensor) const;
  Value value(int i) const { return value(tensor(i)); }
  Value value(int i, Dtype dtype) const { return convert(value(i), dtype); }
  int64_t integer(int i) const { return arguments_[i].toInt(); }
  bool flag(int i) const { return arguments_[i].toBool(); }
  double number(int i) const { return arguments_[i].toScalar().toDouble(); }
  /// A number that becomes a value of `dtype`, exact for integers.
  Value scalar(int i, Dtype dtype) const;
  /// Empty where it is none.
  std::vector<int64_t> integers(int i) const;
  /// The dtype that arguments i and j promote to; j may be a number.
  Dtype promoted(int i, int j) const;

  /// Writes to a tensor among the arguments, also through a view.
  void write(int i, Value value) const;
  /// A seed for random numbers: drawn from the generator at argument i, or from the device's own.
  Value seed(int generator) const;

 private:
  c10::IValue* arguments_;
  int place_;
};

/// One for each tensor that the function returns; null for an undefined one.
using Values = c10::SmallVector<Value, 3>;

struct Lowering {
  /// "add.Tensor": name and overload.
  const char* name;
  Values (*emit)(const Call&);
  /// Which calls it covers; the others go to the CPU. Null: all.
  bool (*covers)(const Call&) = nullptr;
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
Lowerings average_pool_lowerings();
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

/// All of them.
LOCKSTEP_API std::vector<Lowering> all_lowerings();

/// Helpers of several families.
int64_t wrap_dim(int64_t dim, int64_t rank);
/// All dimensions where `dims` is empty; none for scalars.
std::vector<int64_t> wrap_dims(std::vector<int64_t> dims, int64_t rank);
std::vector<int64_t> all_dims(const Value& a);
int64_t product(Ints shape, Ints dims);
/// The dtype itself, or LibTorch's default where it is an integer type.
Dtype floating(Dtype dtype);
/// `count` values, where one may stand for all.
std::vector<int64_t> expanded(std::vector<int64_t> values, size_t count);

}  // namespace lockstep::xla
