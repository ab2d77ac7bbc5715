#include "lockstep/xla/tensor/aten_call.h"

#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "lockstep/device/random.h"
#include "lockstep/xla/graph/origin.h"
#include "lockstep/xla/tensor/lazy_storage.h"

namespace lockstep::xla {
namespace {

/// The number in a CPU tensor without dimensions.
Value number_of(const at::Tensor& scalar) {
  const Dtype dtype = scalar.scalar_type();
  if (is_float(dtype)) return number(scalar.item().toDouble(), dtype);
  return integer(scalar.item().toLong(), dtype);
}

}  // namespace

Value AtenCall::value(const at::Tensor& tensor) const {
  if (LazyStorage* storage = storage_of(tensor)) {
    XlaDevice& here = device_at(device_index_);
    if (&storage->device() == &here) return read(tensor);
    // A plugin device can be an xla device of its own and also the first of a larger one.
    LOCKSTEP_CHECK_VALUE(storage->device().plugin_devices()[0] == here.plugin_devices()[0], "[", current_origin(),
                         "] all tensors must be of one replica: expected xla:", device_index_, ", found ",
                         tensor.device(), "; move it with to(device)");
    return upload(to_cpu(tensor), here);
  }
  LOCKSTEP_CHECK_VALUE(tensor.defined() && tensor.device().is_cpu(), "[", current_origin(),
                       "] all tensors must be of one device: expected xla:", device_index_, ", found ",
                       tensor.defined() ? tensor.device().str() : "an undefined tensor");
  return tensor.dim() == 0 ? number_of(tensor) : upload(tensor, device_at(device_index_));
}

Value AtenCall::scalar(int i, Dtype dtype) const {
  const at::Scalar& given = arguments_[i].toScalar();
  if (is_float(dtype) || given.isFloatingPoint()) return convert(xla::number(given.toDouble(), at::kDouble), dtype);
  return convert(xla::integer(given.toLong(), at::kLong), dtype);
}

std::vector<int64_t> AtenCall::integers(int i) const {
  return arguments_[i].isNone() ? std::vector<int64_t>{} : arguments_[i].toIntVector();
}

Dtype AtenCall::promoted(int i, int j) const {
  if (arguments_[j].isTensor()) return at::result_type(tensor(i), tensor(j));
  return at::result_type(tensor(i), arguments_[j].toScalar());
}

void AtenCall::write(int i, Value value) const { xla::write(tensor(i), std::move(value)); }

Value AtenCall::seed(int generator) const {
  const at::Generator given = arguments_[generator].isNone() ? at::globalContext().defaultGenerator(at::kCPU)
                                                             : arguments_[generator].toGenerator();
  LOCKSTEP_CHECK_VALUE(given.device().is_cpu(), "[", current_origin(),
                       "] random numbers on XLA devices are seeded by a generator of the CPU: generator is of ",
                       given.device());
  const auto bits = static_cast<int64_t>(lockstep::detail::draw_bits(given));
  Value seed = xla::integer(bits, at::kLong, /*always_argument=*/true);
  seed->ordinal = device_at(device_index_).next_seed();
  return seed;
}

}  // namespace lockstep::xla
