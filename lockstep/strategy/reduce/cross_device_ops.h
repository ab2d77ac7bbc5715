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

namespace detail {
class NcclOnOneThread;
}

/// The devices of the result of a reduction or a broadcast.
///
/// Made from a device string, or from a distributed value or variable for the devices of its components.
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

  /// Canonical names; empty for the devices of a value's components.
  const std::vector<std::string>& devices() const { return devices_; }
  /// Number of copies of the result.
  int num_copies() const;

 private:
  std::vector<std::string> devices_;
  int like_value_ = 0;
};

/// A value that `batch_reduce_to` takes: a PerReplica tensor, or a tensor that is the same on all replicas.
class LOCKSTEP_API ReducibleValue {
 public:
  ReducibleValue(PerReplica<at::Tensor> value) : value_(std::move(value)) {}  // NOLINT: all of them are values
  ReducibleValue(at::Tensor value) : value_(PerReplica<at::Tensor>::bare(std::move(value))) {}      // NOLINT
  ReducibleValue(const Mirrored<at::Tensor>& value) : ReducibleValue(at::Tensor(value.value())) {}  // NOLINT

  const PerReplica<at::Tensor>& components() const { return value_; }

 private:
  PerReplica<at::Tensor> value_;
};

/// Reduces values of several devices to one value on one or several devices.
///
/// Every implementation of lockstep adds in one fixed binary tree over the components, so all give the same bits,
/// except NcclAllReduce between cards; they differ in how they copy between devices. Half and bfloat16 are summed in
/// float and rounded once. The mean is the sum divided by the number of components; the mean of integers is floating
/// point.
///
/// A subclass of yours that is given to MirroredStrategy reduces everywhere: in `reduce`, in `all_reduce` of a replica,
/// and the gradients of each step. `do_batch_reduce` gets the dense gradients of one step together. It is called on one
/// thread at a time. With the implementations of lockstep replicas do the same sums together, each a part of them.
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
  /// Reduces many values together.
  std::vector<Mirrored<at::Tensor>> batch_reduce(ReduceOp op, const std::vector<ValueAndDestinations>& values,
                                                 const CommunicationOptions& options = {}) const;

  /// Returns one copy of `value` for each destination.
  Mirrored<at::Tensor> broadcast(const at::Tensor& value, const Destinations& destinations) const;

  /// Throws where a call has returned, and the work that it has queued on GPUs has failed since: a checkpoint asks
  /// before it is written. `asks` stands in the error.
  virtual void check_queued_work(const char* /*asks*/) const {}

  /// Concatenates the components along `axis`, one copy for each destination. Sizes along `axis` may differ. A single
  /// component is copied unchanged.
  Mirrored<at::Tensor> gather(const PerReplica<at::Tensor>& value, const Destinations& destinations, int64_t axis,
                              const CommunicationOptions& options = {}) const;

 protected:
  /// The components of one value, of equal shapes and dtype, and the device of the result.
  struct Components {
    std::vector<at::Tensor> tensors;
    c10::Device device;
  };

  /// Combines components, of equal shapes and dtype, into one tensor on `device`.
  virtual at::Tensor do_reduce(ReduceOp op, at::ArrayRef<at::Tensor> components, c10::Device device) const = 0;
  /// Combines the components of each value. The default calls `do_reduce` for each of them.
  virtual std::vector<at::Tensor> do_batch_reduce(ReduceOp op, const std::vector<Components>& values) const;
  /// Returns one copy of `value` for each device; no two copies share memory. The default copies from `value`.
  virtual std::vector<at::Tensor> do_copy(const at::Tensor& value, const std::vector<c10::Device>& devices) const;
  /// Throws if the implementation does not support the devices of the components.
  virtual void check_devices(at::ArrayRef<at::Tensor> components) const;

  /// Reduces values in `num_packs` packs of about equal size: values of one dtype and of the same devices are
  /// concatenated, and the concatenation is divided. With 0 each value is reduced alone.
  std::vector<at::Tensor> reduce_in_packs(ReduceOp op, const std::vector<Components>& values, int num_packs) const;
};

/// Copies all components to one device, adds them there and copies the sum to the destinations.
class LOCKSTEP_API ReductionToOneDevice : public CrossDeviceOps {
 public:
  using Accumulate = std::function<at::Tensor(const std::vector<at::Tensor>&)>;

  /// Reduces on `reduce_to_device`, or on the first destination if it is empty. `accumulation_fn` replaces the sum, as
  /// a subclass does.
  explicit ReductionToOneDevice(std::string reduce_to_device = "", Accumulate accumulation_fn = nullptr);
  const char* name() const override { return "ReductionToOneDevice"; }
  bool has_accumulation_fn() const { return accumulation_fn_ != nullptr; }

 protected:
  at::Tensor do_reduce(ReduceOp op, at::ArrayRef<at::Tensor> components, c10::Device device) const override;

 private:
  std::string reduce_to_device_;
  Accumulate accumulation_fn_;
};

/// Sums inside two halves of the devices first, then between them; the sum is copied to the first device of each half
/// and from there to the others of that half. A slow link between the halves is used once in each direction. The first
/// half is the largest power of two that is smaller than the number of devices.
class LOCKSTEP_API HierarchicalCopyAllReduce : public CrossDeviceOps {
 public:
  /// `batch_reduce` makes `num_packs` tensors of about equal size of its values; 0 packs nothing.
  explicit HierarchicalCopyAllReduce(int num_packs = 1);
  const char* name() const override { return "HierarchicalCopyAllReduce"; }
  int num_packs() const { return num_packs_; }

 protected:
  at::Tensor do_reduce(ReduceOp op, at::ArrayRef<at::Tensor> components, c10::Device device) const override;
  std::vector<at::Tensor> do_batch_reduce(ReduceOp op, const std::vector<Components>& values) const override;
  std::vector<at::Tensor> do_copy(const at::Tensor& value, const std::vector<c10::Device>& devices) const override;

 private:
  int num_packs_;
};

/// For several GPUs: NCCL adds. It does so where each component is on a card of its own and NCCL has the dtype; then
/// sums need not have the bits of the fixed tree, and half and bfloat16 are rounded by NCCL. Otherwise, as with two
/// logical GPUs of one card, components are copied to one GPU and added there.
class LOCKSTEP_API NcclAllReduce : public CrossDeviceOps {
 public:
  /// `batch_reduce` makes `num_packs` tensors of about equal size of its values; 0 packs nothing.
  explicit NcclAllReduce(int num_packs = 1);
  const char* name() const override { return "NcclAllReduce"; }
  int num_packs() const { return num_packs_; }
  void check_queued_work(const char* asks) const override;

 protected:
  at::Tensor do_reduce(ReduceOp op, at::ArrayRef<at::Tensor> components, c10::Device device) const override;
  std::vector<at::Tensor> do_batch_reduce(ReduceOp op, const std::vector<Components>& values) const override;
  std::vector<at::Tensor> do_copy(const at::Tensor& value, const std::vector<c10::Device>& devices) const override;
  void check_devices(at::ArrayRef<at::Tensor> components) const override;

 private:
  int num_packs_;
  /// The communicators that were used so far.
  std::shared_ptr<detail::NcclOnOneThread> nccl_;
};

/// Whether `ops` add as all replicas of a step do together: those of lockstep, without an accumulation function.
LOCKSTEP_API bool adds_as_replicas_do(const CrossDeviceOps& ops);

/// Chooses by canonical device names: NcclAllReduce for several physical GPUs, else ReductionToOneDevice.
LOCKSTEP_API std::shared_ptr<CrossDeviceOps> select_cross_device_ops(const std::vector<std::string>& devices);

}  // namespace lockstep
