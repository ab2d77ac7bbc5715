#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/api.h"
#include "lockstep/base/reduce_op.h"
#include "lockstep/comm/options.h"
#include "lockstep/value/distributed.h"
#include "lockstep/value/indexed_slices.h"

namespace lockstep {

class Variable;

/// The devices that a reduction or a broadcast leaves its result on.
///
/// Made from a device string, or from a distributed value or variable, which stands for the devices of its components.
class LOCKSTEP_API Destinations {
 public:
  Destinations(const std::string& device);                                 // NOLINT: a device string is a destination
  Destinations(const char* device) : Destinations(std::string(device)) {}  // NOLINT
  Destinations(const at::Tensor& tensor);                                  // NOLINT: the device that holds it
  Destinations(const Variable& variable);  // NOLINT: the devices of its copies; it is not changed
  /// Takes several devices; at least one.
  explicit Destinations(std::vector<std::string> devices);

  template <class T>
  Destinations(const PerReplica<T>& value) : like_value_(static_cast<int>(value.size())) {}  // NOLINT
  template <class T>
  Destinations(const Mirrored<T>& value) : like_value_(static_cast<int>(value.size())) {}  // NOLINT

  /// Canonical names; empty for "where the components of a value are".
  const std::vector<std::string>& devices() const { return devices_; }
  /// Number of copies of the result.
  int num_copies() const;

 private:
  std::vector<std::string> devices_;
  int like_value_ = 0;
};

/// How values of several devices become one value on one or several devices.
///
/// Every implementation adds in one fixed binary tree over the components, so the choice never changes a bit of the
/// result; it decides how bytes travel. Half and bfloat16 are summed in float and rounded once. The mean is the sum
/// divided by the number of components; of integers it is floating point.
class LOCKSTEP_API CrossDeviceOps {
 public:
  virtual ~CrossDeviceOps() = default;

  /// For example "ReductionToOneDevice".
  virtual const char* name() const = 0;

  /// Returns one copy of the reduced value for each destination.
  Mirrored<at::Tensor> reduce(ReduceOp op, const PerReplica<at::Tensor>& value, const Destinations& destinations,
                              const CommunicationOptions& options = {}) const;
  /// Sparse values are concatenated in component order; the mean divides them by the number of components.
  Mirrored<IndexedSlices> reduce(ReduceOp op, const PerReplica<IndexedSlices>& value, const Destinations& destinations,
                                 const CommunicationOptions& options = {}) const;

  using ValueAndDestinations = std::pair<PerReplica<at::Tensor>, Destinations>;
  /// Reduces many values; the same as one `reduce` each, in fewer and larger steps where that is faster.
  std::vector<Mirrored<at::Tensor>> batch_reduce(ReduceOp op, const std::vector<ValueAndDestinations>& values,
                                                 const CommunicationOptions& options = {}) const;

  /// Returns one copy of `value` for each destination.
  Mirrored<at::Tensor> broadcast(const at::Tensor& value, const Destinations& destinations) const;

  /// Concatenates the components along `axis`, one copy for each destination. Sizes along `axis` may differ. A single
  /// component is passed on as it is.
  Mirrored<at::Tensor> gather(const PerReplica<at::Tensor>& value, const Destinations& destinations, int64_t axis,
                              const CommunicationOptions& options = {}) const;

 protected:
  /// Combines components, of equal shapes and dtype, into one tensor on `device`.
  virtual at::Tensor do_reduce(ReduceOp op, at::ArrayRef<at::Tensor> components, c10::Device device) const = 0;
  /// Throws where the implementation cannot work on these devices.
  virtual void check_devices(at::ArrayRef<at::Tensor> components) const;
};

/// Copies all components to one device, adds them there and copies the sum to the destinations.
class LOCKSTEP_API ReductionToOneDevice : public CrossDeviceOps {
 public:
  using Accumulate = std::function<at::Tensor(const std::vector<at::Tensor>&)>;

  /// Reduces on `reduce_to_device`, or on the first destination where it is empty, by `accumulation_fn` instead of the
  /// sum where one is given.
  explicit ReductionToOneDevice(std::string reduce_to_device = "", Accumulate accumulation_fn = nullptr);
  const char* name() const override { return "ReductionToOneDevice"; }

 protected:
  at::Tensor do_reduce(ReduceOp op, at::ArrayRef<at::Tensor> components, c10::Device device) const override;

 private:
  std::string reduce_to_device_;
  Accumulate accumulation_fn_;
};

/// Sums inside two halves of the devices first, then between them: one slow link is crossed once.
class LOCKSTEP_API HierarchicalCopyAllReduce : public CrossDeviceOps {
 public:
  /// `num_packs` tensors of about equal size are made of a batch; 0 packs nothing.
  explicit HierarchicalCopyAllReduce(int num_packs = 1);
  const char* name() const override { return "HierarchicalCopyAllReduce"; }
  int num_packs() const { return num_packs_; }

 protected:
  at::Tensor do_reduce(ReduceOp op, at::ArrayRef<at::Tensor> components, c10::Device device) const override;

 private:
  int num_packs_;
};

/// For several GPUs. NVIDIA's library does not carry the bytes yet: components are copied to one GPU and added there,
/// in the order that every implementation adds in.
class LOCKSTEP_API NcclAllReduce : public CrossDeviceOps {
 public:
  explicit NcclAllReduce(int num_packs = 1);
  const char* name() const override { return "NcclAllReduce"; }
  int num_packs() const { return num_packs_; }

 protected:
  at::Tensor do_reduce(ReduceOp op, at::ArrayRef<at::Tensor> components, c10::Device device) const override;
  void check_devices(at::ArrayRef<at::Tensor> components) const override;

 private:
  int num_packs_;
};

/// Chooses for a list of canonical device names: NcclAllReduce for several physical GPUs where NCCL is there, else
/// ReductionToOneDevice.
LOCKSTEP_API std::shared_ptr<CrossDeviceOps> select_cross_device_ops(const std::vector<std::string>& devices);

namespace detail {
/// Combines tensors in the fixed binary tree: at level k, tensor i takes in tensor i + 2^k, on the device of tensor i.
/// The same bits as `all_reduce` gives.
LOCKSTEP_API at::Tensor tree_reduce(ReduceOp op, std::vector<at::Tensor> tensors);
/// Divides as the mean does: integers become float32 (8 and 16 bits) or float64.
LOCKSTEP_API at::Tensor divide_for_mean(const at::Tensor& sum, double divisor);
/// The type of a mean of `type`.
LOCKSTEP_API at::ScalarType mean_type(at::ScalarType type);
}  // namespace detail

}  // namespace lockstep
