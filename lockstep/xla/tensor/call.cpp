#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "lockstep/device/random.h"
#include "lockstep/xla/lower/lowering.h"
#include "lockstep/xla/tensor/lazy_storage.h"

/// The half of Call that knows tensors.
namespace lockstep::xla {
namespace {

/// A CPU tensor without dimensions: mostly a number that LibTorch has wrapped.
Value number_of(const at::Tensor& scalar) {
  const Dtype dtype = scalar.scalar_type();
  if (is_float(dtype)) return number(scalar.item().toDouble(), dtype);
  return integer(scalar.item().toLong(), dtype);
}

}  // namespace

Value Call::value(const at::Tensor& tensor) const {
  if (LazyStorage* storage = storage_of(tensor)) {
    Place& here = place_at(place_);
    if (&storage->place() == &here) return read(tensor);
    // A device that is a replica by itself may be the first of several that are one.
    LOCKSTEP_CHECK_VALUE(storage->place().devices()[0] == here.devices()[0], "[", current_origin(),
                         "] all tensors must be of one replica: expected xla:", place_, ", found ", tensor.device(),
                         "; move it with to(device)");
    return upload(to_cpu(tensor), here);
  }
  LOCKSTEP_CHECK_VALUE(tensor.defined() && tensor.device().is_cpu(), "[", current_origin(),
                       "] all tensors must be of one device: expected xla:", place_, ", found ",
                       tensor.defined() ? tensor.device().str() : "an undefined tensor");
  return tensor.dim() == 0 ? number_of(tensor) : upload(tensor, place_at(place_));
}

Value Call::scalar(int i, Dtype dtype) const {
  const at::Scalar& given = arguments_[i].toScalar();
  if (is_float(dtype) || given.isFloatingPoint()) return convert(xla::number(given.toDouble(), at::kDouble), dtype);
  return convert(xla::integer(given.toLong(), at::kLong), dtype);
}

std::vector<int64_t> Call::integers(int i) const {
  return arguments_[i].isNone() ? std::vector<int64_t>{} : arguments_[i].toIntVector();
}

Dtype Call::promoted(int i, int j) const {
  if (arguments_[j].isTensor()) return at::result_type(tensor(i), tensor(j));
  return at::result_type(tensor(i), arguments_[j].toScalar());
}

void Call::write(int i, Value value) const { xla::write(tensor(i), std::move(value)); }

Value Call::seed(int generator) const {
  const at::Generator given = arguments_[generator].isNone() ? at::globalContext().defaultGenerator(at::kCPU)
                                                             : arguments_[generator].toGenerator();
  LOCKSTEP_CHECK_VALUE(given.device().is_cpu(), "[", current_origin(),
                       "] random numbers on XLA devices are seeded by a generator of the CPU: generator is of ",
                       given.device());
  const auto bits = static_cast<int64_t>(lockstep::detail::draw_bits(given));
  Value seed = xla::integer(bits, at::kLong, /*always_argument=*/true);
  seed->ordinal = place_at(place_).next_seed();
  return seed;
}

}  // namespace lockstep::xla
