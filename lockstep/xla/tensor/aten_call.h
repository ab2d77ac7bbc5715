#pragma once

#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include "lockstep/xla/graph/ops/build.h"

namespace lockstep::xla {

/// A call of an ATen function that is traced: its arguments, in the order of the function's schema.
class AtenCall {
 public:
  AtenCall(c10::IValue* arguments, int device_index) : arguments_(arguments), device_index_(device_index) {}

  /// The index of the device `xla:k` that the call computes on.
  int device_index() const { return device_index_; }
  const c10::IValue& argument(int i) const { return arguments_[i]; }

  bool is_none(int i) const { return arguments_[i].isNone(); }
  /// Whether argument i is a tensor, and defined.
  bool has(int i) const { return arguments_[i].isTensor() && arguments_[i].toTensor().defined(); }
  const at::Tensor& tensor(int i) const { return arguments_[i].toTensor(); }
  std::vector<at::Tensor> tensors(int i) const { return arguments_[i].toTensorVector(); }
  /// The value of a tensor of this device. A CPU tensor is uploaded; one without dimensions becomes a number.
  Value value(const at::Tensor& tensor) const;
  Value value(int i) const { return value(tensor(i)); }
  Value value(int i, Dtype dtype) const { return convert(value(i), dtype); }
  int64_t integer(int i) const { return arguments_[i].toInt(); }
  bool flag(int i) const { return arguments_[i].toBool(); }
  double number(int i) const { return arguments_[i].toScalar().toDouble(); }
  /// A number as a value of `dtype`, exact for integers.
  Value scalar(int i, Dtype dtype) const;
  /// Empty for none.
  std::vector<int64_t> integers(int i) const;
  /// The dtype that arguments i and j promote to; j may be a number.
  Dtype promoted(int i, int j) const;

  /// Writes to a tensor among the arguments, also through a view.
  void write(int i, Value value) const;
  /// A seed for random numbers, drawn from the generator at this argument, or from the default one if it is none.
  Value seed(int generator) const;

 private:
  c10::IValue* arguments_;
  int device_index_;
};

}  // namespace lockstep::xla
