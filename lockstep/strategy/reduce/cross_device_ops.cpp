#include "lockstep/strategy/reduce/cross_device_ops.h"

#include <algorithm>
#include <optional>
#include <set>
#include <typeinfo>

#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/device_collectives.h"
#include "lockstep/device/device_scope.h"
#include "lockstep/device/device_spec.h"
#include "lockstep/device/logical_devices.h"
#include "lockstep/strategy/reduce/nccl_groups.h"
#include "lockstep/strategy/reduce/nccl_on_one_thread.h"
#include "lockstep/strategy/reduce/tree_reduce.h"
#include "lockstep/strategy/variable/variable.h"

namespace lockstep {
namespace {

c10::Device torch_device(const std::string& name) { return find_logical_device(name).torch_device; }

/// The devices of the copies: those named, or those of the components.
std::vector<c10::Device> copy_devices(const Destinations& destinations, at::ArrayRef<at::Tensor> components) {
  std::vector<c10::Device> devices;
  for (const std::string& name : destinations.devices()) devices.push_back(torch_device(name));
  for (int i = 0; devices.empty() || static_cast<int>(devices.size()) < destinations.num_copies(); ++i) {
    devices.push_back(components[std::min<size_t>(i, components.size() - 1)].device());
  }
  return devices;
}

at::Tensor copy_of(const at::Tensor& value, c10::Device device, bool may_share) {
  return value.to(device, value.scalar_type(), /*non_blocking=*/false, /*copy=*/!may_share);
}

template <class T>
Mirrored<T> mirrored(std::vector<T> copies) {
  return Mirrored<T>(copies);
}

void check_num_packs(const char* name, int num_packs) {
  LOCKSTEP_CHECK_VALUE(num_packs >= 0, "[", name, "] num_packs must not be negative: num_packs=", num_packs,
                       "; 0 packs nothing");
}

/// The GPU that a logical device is on, or nothing for a CPU. For a device that does not exist it is its index.
std::optional<int> card_of(const std::string& name) {
  const DeviceSpec spec = DeviceSpec::parse(name);
  if (spec.type() != "GPU") return std::nullopt;
  return has_logical_device(name) ? torch_device(name).index() : spec.index().value_or(0);
}

/// NCCL adds in an order of its own, between GPUs.
const CrossDeviceOps& for_call(const CrossDeviceOps& ops, const CommunicationOptions& options) {
  static const ReductionToOneDevice exact;
  return detail::does_without_nccl(options) && typeid(ops) == typeid(NcclAllReduce) ? exact : ops;
}

std::vector<at::Tensor> moved_to(at::ArrayRef<at::Tensor> components, c10::Device device) {
  std::vector<at::Tensor> moved;
  for (const at::Tensor& component : components) moved.push_back(component.to(device));
  return moved;
}

}  // namespace

Destinations::Destinations(const std::string& device) : devices_{resolve(device)} {
  LOCKSTEP_CHECK_VALUE(!device.empty(), "[Destinations] a destination must be named: device=\"\"");
}

Destinations::Destinations(std::vector<std::string> devices) : devices_(std::move(devices)) {
  LOCKSTEP_CHECK_VALUE(!devices_.empty(), "[Destinations] at least one device is needed");
  for (std::string& device : devices_) device = resolve(device);
}

Destinations::Destinations(const at::Tensor&) : like_value_(1) {}

Destinations::Destinations(const Variable& variable) : Destinations(variable.devices()) {}

int Destinations::num_copies() const { return devices_.empty() ? like_value_ : static_cast<int>(devices_.size()); }

void CrossDeviceOps::check_devices(at::ArrayRef<at::Tensor>) const {}

std::vector<at::Tensor> CrossDeviceOps::do_batch_reduce(ReduceOp op, const std::vector<Components>& values) const {
  std::vector<at::Tensor> results;
  for (const auto& [tensors, device] : values) results.push_back(do_reduce(op, tensors, device));
  return results;
}

std::vector<at::Tensor> CrossDeviceOps::do_copy(const at::Tensor& value,
                                                const std::vector<c10::Device>& devices) const {
  std::vector<at::Tensor> copies;
  for (const c10::Device& device : devices) copies.push_back(copy_of(value, device, copies.empty()));
  return copies;
}

Mirrored<at::Tensor> CrossDeviceOps::reduce(ReduceOp op, const PerReplica<at::Tensor>& value,
                                            const Destinations& destinations,
                                            const CommunicationOptions& options) const {
  options.validate();
  const std::vector<at::Tensor> components(value.begin(), value.end());
  detail::check_same_shapes("reduce", components);
  check_devices(components);
  const auto devices = copy_devices(destinations, components);
  const CrossDeviceOps& ops = for_call(*this, options);
  return mirrored(ops.do_copy(ops.do_reduce(op, components, devices[0]), devices));
}

Mirrored<IndexedSlices> CrossDeviceOps::reduce(ReduceOp op, const PerReplica<IndexedSlices>& value,
                                               const Destinations& destinations,
                                               const CommunicationOptions& options) const {
  options.validate();
  LOCKSTEP_CHECK_VALUE(op == ReduceOp::Sum || op == ReduceOp::Mean,
                       "[reduce] slices can be summed or averaged: op=", op);
  IndexedSlices all = concatenate(std::vector<IndexedSlices>(value.begin(), value.end()));
  if (op == ReduceOp::Mean) all.values = detail::divide_for_mean(all.values, static_cast<double>(value.size()));
  std::vector<IndexedSlices> copies;
  const std::vector<at::Tensor> parts{all.values};
  for (const c10::Device& device : copy_devices(destinations, parts)) {
    copies.push_back({all.indices.to(device), all.values.to(device), all.dense_shape});
  }
  return mirrored(std::move(copies));
}

std::vector<Mirrored<at::Tensor>> CrossDeviceOps::batch_reduce(ReduceOp op,
                                                               const std::vector<ValueAndDestinations>& values,
                                                               const CommunicationOptions& options) const {
  options.validate();
  std::vector<Components> all;
  std::vector<std::vector<c10::Device>> devices;
  for (const auto& [value, destinations] : values) {
    std::vector<at::Tensor> tensors(value.begin(), value.end());
    detail::check_same_shapes("reduce", tensors);
    check_devices(tensors);
    devices.push_back(copy_devices(destinations, tensors));
    all.push_back({std::move(tensors), devices.back()[0]});
  }
  const CrossDeviceOps& ops = for_call(*this, options);
  const std::vector<at::Tensor> reduced = ops.do_batch_reduce(op, all);
  LOCKSTEP_CHECK_VALUE(reduced.size() == values.size(), "[", name(),
                       "] do_batch_reduce must return one tensor for each value: values=", values.size(),
                       ", returned=", reduced.size());
  std::vector<Mirrored<at::Tensor>> results;
  for (size_t i = 0; i < reduced.size(); ++i) results.push_back(mirrored(ops.do_copy(reduced[i], devices[i])));
  return results;
}

Mirrored<at::Tensor> CrossDeviceOps::broadcast(const at::Tensor& value, const Destinations& destinations) const {
  const std::vector<at::Tensor> components{value};
  return mirrored(do_copy(value, copy_devices(destinations, components)));
}

Mirrored<at::Tensor> CrossDeviceOps::gather(const PerReplica<at::Tensor>& value, const Destinations& destinations,
                                            int64_t axis, const CommunicationOptions& options) const {
  options.validate();
  const std::vector<at::Tensor> components(value.begin(), value.end());
  const auto devices = copy_devices(destinations, components);
  if (components.size() == 1) return mirrored(do_copy(components[0], devices));
  const int64_t rank = components[0].dim();
  LOCKSTEP_CHECK_VALUE(rank > 0, "[gather] scalars cannot be concatenated: rank=0; reshape them to one element first");
  LOCKSTEP_CHECK_VALUE(axis >= -rank && axis < rank, "[gather] the axis must be in [", -rank, ", ", rank,
                       "): axis=", axis);
  for (const at::Tensor& component : components) {
    LOCKSTEP_CHECK_VALUE(component.dim() == rank, "[gather] all components must have one rank: ", rank, " and ",
                         component.dim());
    for (int64_t d = 0; d < rank; ++d) {
      LOCKSTEP_CHECK_VALUE(d == (axis + rank) % rank || component.size(d) == components[0].size(d),
                           "[gather] sizes may differ along axis ", axis, " only: dimension ", d, " is ",
                           components[0].size(d), " and ", component.size(d));
    }
  }
  return mirrored(do_copy(at::cat(moved_to(components, devices[0]), axis), devices));
}

ReductionToOneDevice::ReductionToOneDevice(std::string reduce_to_device, Accumulate accumulation_fn)
    : reduce_to_device_(std::move(reduce_to_device)), accumulation_fn_(std::move(accumulation_fn)) {}

at::Tensor ReductionToOneDevice::do_reduce(ReduceOp op, at::ArrayRef<at::Tensor> components, c10::Device device) const {
  if (!reduce_to_device_.empty()) device = torch_device(resolve(reduce_to_device_));
  std::vector<at::Tensor> here = moved_to(components, device);
  const bool adds = op == ReduceOp::Sum || op == ReduceOp::Mean;
  if (!accumulation_fn_ || !adds) return detail::tree_reduce(op, std::move(here));
  const at::Tensor sum = accumulation_fn_(here);
  return op == ReduceOp::Mean ? detail::divide_for_mean(sum, static_cast<double>(here.size())) : sum;
}

HierarchicalCopyAllReduce::HierarchicalCopyAllReduce(int num_packs) : num_packs_(num_packs) {
  check_num_packs("HierarchicalCopyAllReduce", num_packs);
}

at::Tensor HierarchicalCopyAllReduce::do_reduce(ReduceOp op, at::ArrayRef<at::Tensor> components,
                                                c10::Device device) const {
  return detail::tree_reduce(op, components.vec()).to(device);  // each pair is added on the device of its left member
}

std::vector<at::Tensor> HierarchicalCopyAllReduce::do_batch_reduce(ReduceOp op,
                                                                   const std::vector<Components>& values) const {
  return reduce_in_packs(op, values, num_packs_);
}

std::vector<at::Tensor> HierarchicalCopyAllReduce::do_copy(const at::Tensor& value,
                                                           const std::vector<c10::Device>& devices) const {
  const std::vector<size_t> sources = detail::hierarchical_sources(devices.size());
  std::vector<at::Tensor> copies;
  for (size_t i = 0; i < devices.size(); ++i) {
    copies.push_back(copy_of(i == 0 ? value : copies[sources[i]], devices[i], /*may_share=*/i == 0));
  }
  return copies;
}

NcclAllReduce::NcclAllReduce(int num_packs)
    : num_packs_(num_packs), nccl_(std::make_shared<detail::NcclOnOneThread>()) {
  check_num_packs("NcclAllReduce", num_packs);
}

void NcclAllReduce::check_devices(at::ArrayRef<at::Tensor> components) const {
  for (const at::Tensor& component : components) {
    LOCKSTEP_CHECK_VALUE(component.is_cuda() || components.size() == 1,
                         "[NcclAllReduce] NCCL works on GPUs only: a component is on ", component.device(),
                         "; use ReductionToOneDevice or HierarchicalCopyAllReduce");
  }
}

std::vector<at::Tensor> NcclAllReduce::do_batch_reduce(ReduceOp op, const std::vector<Components>& values) const {
  return reduce_in_packs(op, values, num_packs_);
}

std::vector<at::Tensor> NcclAllReduce::do_copy(const at::Tensor& value, const std::vector<c10::Device>& devices) const {
  auto copies = nccl_->broadcast(value, devices);
  return copies.empty() ? CrossDeviceOps::do_copy(value, devices) : copies;
}

void NcclAllReduce::check_queued_work(const char* asks) const { nccl_->check(asks); }

at::Tensor NcclAllReduce::do_reduce(ReduceOp op, at::ArrayRef<at::Tensor> components, c10::Device device) const {
  if (const at::Tensor reduced = nccl_->reduce(op, components, device); reduced.defined()) return reduced;
  return detail::tree_reduce(op, moved_to(components, device));
}

bool adds_as_replicas_do(const CrossDeviceOps& ops) {
  const std::type_info& type = typeid(ops);  // a subclass of one of these is another type
  if (type == typeid(ReductionToOneDevice)) {
    return !static_cast<const ReductionToOneDevice&>(ops).has_accumulation_fn();
  }
  return type == typeid(HierarchicalCopyAllReduce) || type == typeid(NcclAllReduce);
}

std::shared_ptr<CrossDeviceOps> select_cross_device_ops(const std::vector<std::string>& devices) {
  std::set<int> cards;
  for (const std::string& name : devices) {
    if (const auto card = card_of(canonicalize(name))) cards.insert(*card);
  }
  const bool one_card_each = devices.size() > 1 && cards.size() == devices.size();
  const bool any_cards = devices.size() > 1 && !cards.empty() && comm::takes_ranks_of_one_card();
  if (one_card_each || any_cards) return std::make_shared<NcclAllReduce>();
  return std::make_shared<ReductionToOneDevice>();
}

}  // namespace lockstep
