#include "lockstep/strategy/optimizer/module_buffers.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <unordered_map>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/nn/modules/batchnorm.h>

#include "lockstep/base/dtype_name.h"
#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"
#include "lockstep/comm/diagnostics/call_site.h"
#include "lockstep/comm/group.h"
#include "lockstep/strategy/aten_overrides/batch_norm.h"
#include "lockstep/strategy/strategy_impl.h"

namespace lockstep {

std::ostream& operator<<(std::ostream& out, BufferRule rule) {
  constexpr const char* kNames[] = {"Mean", "Sum", "First", "Own"};
  return out << kNames[static_cast<size_t>(rule)];
}

namespace detail {
namespace {

/// Statistics are smaller than this; larger buffers are tables, whose values would take long to hash.
constexpr size_t kStatisticsBytes = size_t{64} << 10;

bool has_mixed_types(const std::vector<LogicalDevice>& devices) {
  return std::any_of(devices.begin(), devices.end(), [&](const LogicalDevice& device) {
    return device.torch_device.type() != devices[0].torch_device.type();
  });
}

bool name_matches(std::string_view pattern, std::string_view name) {
  if (pattern.empty()) return name.empty();
  if (pattern[0] != '*')
    return !name.empty() && name[0] == pattern[0] && name_matches(pattern.substr(1), name.substr(1));
  for (size_t skipped = 0; skipped <= name.size(); ++skipped) {
    if (name_matches(pattern.substr(1), name.substr(skipped))) return true;
  }
  return false;
}

void check_rule_suits(const std::string& name, BufferRule rule, at::ScalarType dtype) {
  const bool has_mean = at::isFloatingType(dtype) || at::isComplexType(dtype);
  LOCKSTEP_CHECK_VALUE(rule != BufferRule::Mean || has_mean,
                       "[set_buffer_rule] only floating point and complex buffers have a mean: buffer=", name,
                       ", dtype=", dtype_name(dtype), "; give First, Sum or Own");
  LOCKSTEP_CHECK_VALUE(rule != BufferRule::Sum || dtype != at::kBool,
                       "[set_buffer_rule] bool buffers cannot be added: buffer=", name, "; give First or Own");
}

/// Returns the tensor to compute with: no gradients, and writes are not counted, because LibTorch does not count those
/// of batch normalization either.
at::Tensor plain(const at::Tensor& tensor) {
  const at::Tensor data = tensor.variable_data();
  return data.is_complex() ? at::view_as_real(data) : data;
}

uint64_t hash_values(const at::Tensor& tensor) {
  const at::Tensor values = tensor.variable_data().contiguous();
  return mix_hash(1, static_cast<const char*>(values.data_ptr()), values.nbytes());
}

template <class BatchNorm>
const at::Tensor* counter_of(const torch::nn::Module& module) {
  const auto* const norm = module.as<BatchNorm>();
  return norm == nullptr || !norm->num_batches_tracked.defined() ? nullptr : &norm->num_batches_tracked;
}

/// The tensor that a module of LibTorch increases whenever it writes its statistics.
const at::Tensor* batch_counter(const torch::nn::Module& module) {
  if (const auto* counter = counter_of<torch::nn::BatchNorm1dImpl>(module)) return counter;
  if (const auto* counter = counter_of<torch::nn::BatchNorm2dImpl>(module)) return counter;
  return counter_of<torch::nn::BatchNorm3dImpl>(module);
}

std::string described(at::ScalarType dtype, at::IntArrayRef sizes) { return c10::str(dtype_name(dtype), sizes); }

}  // namespace

ModuleBuffers::ModuleBuffers(const StrategyImpl& strategy, const Modules& modules)
    : strategy_(strategy),
      is_traced_(strategy.devices()[0].torch_device.type() == c10::DeviceType::XLA),
      has_mixed_devices_(has_mixed_types(strategy.devices())) {
  for (const auto& [name, tensor] : distinct(modules[0]->named_buffers())) {
    Buffer buffer;
    buffer.name = name;
    // Synchronised statistics are equal already.
    const bool has_mean = tensor.is_floating_point() && !BatchNormOverride::is_marked(tensor);
    buffer.rule = has_mean ? BufferRule::Mean : BufferRule::First;
    buffer.written_silently = tensor.is_floating_point() && tensor.nbytes() <= kStatisticsBytes;
    buffers_.push_back(std::move(buffer));
  }
  for (const auto& module : modules) add_copies(*module);
  find_counters();
  for (Copies& copies : copies_) {
    for (size_t b = 0; b < buffers_.size(); ++b) take(copies, b);
  }
}

void ModuleBuffers::add_copies(const torch::nn::Module& module) {
  std::unordered_map<const c10::TensorImpl*, const torch::nn::Module*> owners;
  for (const auto& submodule : module.modules()) {
    for (const at::Tensor& buffer : submodule->buffers(/*recurse=*/false)) {
      owners.emplace(buffer.unsafeGetTensorImpl(), submodule.get());
    }
  }
  copies_.emplace_back();
  for (const auto& [name, tensor] : distinct(module.named_buffers())) {
    Copy copy;
    copy.tensor = tensor;
    copy.owner = owners.at(tensor.unsafeGetTensorImpl());
    copies_.back().push_back(std::move(copy));
  }
}

void ModuleBuffers::find_counters() {
  const Copies& copies = copies_[0];
  for (size_t b = 0; b < buffers_.size(); ++b) {
    const at::Tensor* const counter = batch_counter(*copies[b].owner);
    if (counter == nullptr) continue;
    const auto found =
        std::find_if(copies.begin(), copies.end(), [&](const Copy& other) { return other.tensor.is_same(*counter); });
    if (found == copies.end()) continue;
    buffers_[b].counter = static_cast<int>(found - copies.begin());
  }
}

void ModuleBuffers::set_rule(const std::string& pattern, BufferRule rule) {
  bool found = false;
  std::string names;
  for (size_t b = 0; b < buffers_.size(); ++b) {
    names += (b == 0 ? "" : ", ") + buffers_[b].name;
    if (!name_matches(pattern, buffers_[b].name)) continue;
    found = true;
    check_rule_suits(buffers_[b].name, rule, copies_[0][b].tensor.scalar_type());
    LOCKSTEP_CHECK_VALUE(!buffers_[b].kept_own || rule == BufferRule::Own,
                         "[set_buffer_rule] replicas have run with values of their own: buffer=", buffers_[b].name,
                         ", rule=", rule, "; call model.broadcast() first, which gives all those of the first replica");
  }
  LOCKSTEP_CHECK_VALUE(found, "[set_buffer_rule] the module has no such buffer: name=", pattern,
                       "; its buffers: ", names.empty() ? "none" : names);
  for (size_t b = 0; b < buffers_.size(); ++b) {
    if (!name_matches(pattern, buffers_[b].name)) continue;
    buffers_[b].rule = rule;
    set_equal(b);
  }
}

void ModuleBuffers::set_equal(size_t buffer) {
  buffers_[buffer].kept_own = false;
  for (Copies& copies : copies_) take(copies, buffer);
}

void ModuleBuffers::set_all_equal() {
  for (size_t b = 0; b < buffers_.size(); ++b) set_equal(b);
}

void ModuleBuffers::begin_run() {
  for (Buffer& buffer : buffers_) buffer.kept_own = buffer.kept_own || buffer.rule == BufferRule::Own;
}

bool ModuleBuffers::is_written(const Copies& copies, size_t buffer) const {
  const Copy& copy = copies[buffer];
  const int counter = buffers_[buffer].counter;
  if (!copy.mark.is_of(copy.tensor)) return true;
  if (counter >= 0 && !copies[counter].mark.is_of(copies[counter].tensor)) return true;
  if (!buffers_[buffer].written_silently) return false;
  if (copy.tensor.is_cpu()) return hash_values(copy.tensor) != copy.values;
  return counter < 0 && copy.owner->is_training();
}

/// Takes the present value as the one to compare with.
void ModuleBuffers::take(Copies& copies, size_t buffer) const {
  Copy& copy = copies[buffer];
  copy.mark.take(copy.tensor);
  if (buffers_[buffer].written_silently && copy.tensor.is_cpu()) copy.values = hash_values(copy.tensor);
  if (buffers_[buffer].rule != BufferRule::Sum) return;
  const at::NoGradGuard no_grad;
  const at::Tensor now = copy.tensor.variable_data();
  const bool fits = copy.together.defined() && copy.together.sizes() == now.sizes() &&
                    copy.together.scalar_type() == now.scalar_type() && copy.together.device() == now.device();
  if (fits) {
    copy.together.copy_(now);
  } else {
    copy.together = now.clone();
  }
}

std::vector<std::pair<std::string, at::Tensor>> ModuleBuffers::equal_buffers(int replica) const {
  std::vector<std::pair<std::string, at::Tensor>> equal;
  for (size_t b = 0; b < buffers_.size(); ++b) {
    if (keeps_own(b)) continue;
    equal.emplace_back(buffers_[b].name, copies_[static_cast<size_t>(replica)][b].tensor);
  }
  return equal;
}

void ModuleBuffers::bring_together(int replica) {
  const bool any = std::any_of(buffers_.begin(), buffers_.end(),
                               [](const Buffer& buffer) { return buffer.rule != BufferRule::Own; });
  if (!any || strategy_.num_replicas_in_sync() == 1) return;
  Copies& copies = copies_[static_cast<size_t>(replica)];
  const comm::Group& group = strategy_.group(replica);
  std::vector<char> written(buffers_.size());
  for (size_t b = 0; b < written.size(); ++b) written[b] = !keeps_own(b) && is_written(copies, b) ? 1 : 0;
  if (!is_traced_) agree(group, copies, written);
  if (std::count(written.begin(), written.end(), 0) == static_cast<std::ptrdiff_t>(written.size())) return;
  for (const BufferRule rule : {BufferRule::Mean, BufferRule::Sum, BufferRule::First}) {
    apply(group, copies, written, rule);
  }
  for (size_t b = 0; b < written.size(); ++b) {
    if (written[b] != 0) take(copies, b);
  }
}

/// Sets `written` to what any replica has written. Throws if buffers have different sizes, dtypes or rules.
void ModuleBuffers::agree(const comm::Group& group, const Copies& copies, std::vector<char>& written) const {
  const comm::OperationScope operation({"buffers of a module"});
  const auto count = static_cast<int64_t>(written.size());
  std::vector<int64_t> own;
  for (size_t b = 0; b < written.size(); ++b) {
    const at::Tensor& tensor = copies[b].tensor;
    uint64_t kind = mix_hash(static_cast<uint64_t>(buffers_[b].rule), static_cast<uint64_t>(tensor.scalar_type()));
    for (const int64_t size : tensor.sizes()) kind = mix_hash(kind, static_cast<uint64_t>(size));
    own.push_back(written[b]);
    own.push_back(buffers_[b].rule == BufferRule::Own ? 0 : static_cast<int64_t>(kind));
  }
  const at::Tensor gathered = group.all_gather(at::from_blob(own.data(), {1, 2 * count}, at::kLong), 0);
  const auto* const all = gathered.data_ptr<int64_t>();
  for (int64_t i = 0; i < gathered.numel(); i += 2) {
    const size_t b = static_cast<size_t>(i / 2 % count);
    if (all[i] != 0) written[b] = 1;
    if (all[i + 1] != all[2 * static_cast<int64_t>(b) + 1]) throw_difference(group, copies[b], buffers_[b]);
  }
}

/// Collective: all replicas have found the same difference.
void ModuleBuffers::throw_difference(const comm::Group& group, const Copy& copy, const Buffer& buffer) const {
  constexpr int64_t kDimensions = 8;
  std::vector<int64_t> own(3 + kDimensions, 0);
  own[0] = static_cast<int64_t>(buffer.rule);
  own[1] = static_cast<int64_t>(copy.tensor.scalar_type());
  own[2] = std::min<int64_t>(copy.tensor.dim(), kDimensions);
  for (int64_t d = 0; d < own[2]; ++d) own[static_cast<size_t>(3 + d)] = copy.tensor.size(d);
  const at::Tensor gathered =
      group.all_gather(at::from_blob(own.data(), {1, static_cast<int64_t>(own.size())}, at::kLong), 0);
  std::string all;
  for (int64_t r = 0; r < gathered.size(0); ++r) {
    const auto* const values = gathered[r].data_ptr<int64_t>();
    all += c10::str(r == 0 ? "" : ", ", "replica ", r, " has ",
                    described(static_cast<at::ScalarType>(values[1]), {values + 3, static_cast<size_t>(values[2])}),
                    " with the rule ", static_cast<BufferRule>(values[0]));
  }
  LOCKSTEP_THROW(c10::ValueError,
                 "[module] a buffer must have the same size, dtype and rule on all replicas: buffer=", buffer.name,
                 "; ", all,
                 "; keep its size (a buffer for the rows of a batch is no state: make a tensor instead), or let each ",
                 "replica keep its own: model.set_buffer_rule(\"", buffer.name, "\", BufferRule::Own)");
}

void ModuleBuffers::apply(const comm::Group& group, Copies& copies, const std::vector<char>& written,
                          BufferRule rule) const {
  const at::NoGradGuard no_grad;
  std::map<c10::DeviceType, std::vector<at::Tensor>> exchanged;
  std::vector<std::pair<at::Tensor, at::Tensor>> delivered;
  for (size_t b = 0; b < written.size(); ++b) {
    if (written[b] == 0 || buffers_[b].rule != rule) continue;
    const at::Tensor own = plain(copies[b].tensor);
    at::Tensor value = rule == BufferRule::Sum ? own - plain(copies[b].together) : own;
    if (has_mixed_devices_) value = value.to(at::kCPU);
    if (!value.is_same(own)) delivered.emplace_back(own, value);
    exchanged[value.device().type()].push_back(value);
  }
  for (const auto& [type, tensors] : exchanged) {
    if (rule == BufferRule::First) {
      group.broadcast_(tensors, 0);
    } else {
      group.all_reduce_(tensors, rule == BufferRule::Mean ? ReduceOp::Mean : ReduceOp::Sum);
    }
  }
  // For BufferRule::Sum these are the changes of all replicas, without what they had together.
  for (auto& [own, value] : delivered) own.copy_(value);
  if (rule != BufferRule::Sum) return;
  for (size_t b = 0; b < written.size(); ++b) {
    if (written[b] != 0 && buffers_[b].rule == rule) plain(copies[b].tensor).add_(plain(copies[b].together));
  }
}

}  // namespace detail
}  // namespace lockstep
