#include "lockstep/strategy/input/step_reader.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "lockstep/data/element/private_memory.h"
#include "lockstep/data/transforms/batching/rows.h"
#include "lockstep/device/device_scope.h"

namespace lockstep::detail {
namespace {

data::BatchDivision division_of(const data::NodePtr& node) {
  const bool hands_on = node->role() == data::Role::Trailing || node->role() == data::Role::Shard;
  return hands_on ? division_of(node->input()) : node->batch_division();
}

/// Returns a batch of no rows like `batch`, in memory of its own, or nothing if the element is not a batch.
std::optional<data::Element> without_rows(const data::Element& batch) {
  return data::detail::empty_rows(data::ElementSpec::of(batch));
}

/// Returns whether there is a batch, and it has rows. An element that is not a batch counts as one row.
bool has_rows(const std::optional<data::Element>& element) {
  if (!element) return false;
  for (const data::Leaf& leaf : element->leaves) {
    if (const auto* tensor = leaf.as<at::Tensor>()) {
      if (tensor->defined() && tensor->dim() > 0) return tensor->size(0) > 0;
    } else if (const auto* row = leaf.as<data::Row>()) {
      if (!row->type->sizes.empty()) return row->type->sizes.front() > 0;
    } else if (const auto* list = leaf.as<data::LeafList>()) {
      return !list->leaves->empty();
    }
  }
  return true;
}

/// Returns a copy whose tensors have memory of their own: replicas may write to their batches.
data::Element copy_of(const data::Element& element) {
  data::Element copy = element;
  for (data::Leaf& leaf : copy.leaves) {
    if (auto* tensor = leaf.as<at::Tensor>(); tensor != nullptr && tensor->defined()) *tensor = tensor->clone();
  }
  return copy;
}

}  // namespace

int DistributedInput::num_replicas() const {
  size_t count = 0;
  for (const InputPipeline& pipeline : pipelines) count += pipeline.devices.size();
  return static_cast<int>(count);
}

std::vector<c10::Device> DistributedInput::devices() const {
  std::vector<c10::Device> devices;
  for (const InputPipeline& pipeline : pipelines) {
    devices.insert(devices.end(), pipeline.devices.begin(), pipeline.devices.end());
  }
  return devices;
}

bool Step::has_data() const {
  return !is_past_end &&
         std::any_of(elements.begin(), elements.end(), [](const auto& element) { return element.has_value(); });
}

bool Step::is_complete() const { return std::all_of(elements.begin(), elements.end(), has_rows); }

StepReader::StepReader(const InputPipeline& pipeline, const data::Iteration& iteration)
    : num_replicas_(pipeline.devices.size()),
      division_(division_of(pipeline.node)),
      pin_memory_(iteration.pin_memory),
      copier_(iteration.copier),
      device_(pipeline.is_placed ? pipeline.names.at(0) : "") {
  std::optional<DeviceScope> scope;
  if (!device_.empty()) scope.emplace(device_);
  data::Iteration own = iteration;
  own.pipeline = pipeline.number;
  iterator_ = pipeline.node->iterator(own);
}

void StepReader::prepare() {
  if (prepared_.size() == num_replicas_) return;
  std::optional<DeviceScope> scope;
  if (!device_.empty()) scope.emplace(device_);
  while (prepared_.size() < num_replicas_) {
    data::Element element;
    if (next(element)) {
      prepared_.emplace_back(std::move(element));
    } else {
      prepared_.emplace_back();
    }
  }
}

bool StepReader::next(data::Element& element) {
  try {
    if (!iterator_->next(element)) return false;
  } catch (...) {
    // A batch that fails is one error in each step that it would have fed, not one of each part.
    if (division_ == data::BatchDivision::Parts) iterator_->skip(static_cast<int64_t>(num_replicas_) - 1);
    throw;
  }
  // Replicas may write to their batches.
  if (division_ == data::BatchDivision::None) data::detail::own_tensors(element, pin_memory_, copier_.get());
  return true;
}

void StepReader::read(Step& step) {
  prepare();
  for (auto& element : prepared_) step.elements.push_back(std::move(element));
  prepared_.clear();
}

int64_t StepReader::skip(int64_t count) {
  if (count <= 0) return 0;
  if (!prepared_.empty()) {
    Step begun;
    read(begun);
    return begun.has_data() ? 1 + skip(count - 1) : 0;
  }
  const auto per_step = static_cast<int64_t>(num_replicas_);
  return (iterator_->skip(count * per_step) + per_step - 1) / per_step;
}

const data::Element& EmptyBatches::pattern(const Step& step) {
  for (const auto& element : step.elements) {
    if (!element) continue;
    data::detail::num_rows(*element, "get_next");
    pattern_ = without_rows(*element);
    return *pattern_;
  }
  if (!pattern_) pattern_ = data::detail::empty_rows(node_->spec());
  LOCKSTEP_CHECK_VALUE(pattern_,
                       "[get_next] this worker has no data, and the types and sizes of an empty batch are unknown: ",
                       "element_spec=", node_->spec(), "; give the shapes in MapOptions::spec or GeneratorOptions");
  return *pattern_;
}

void EmptyBatches::fill(Step& step) {
  for (size_t replica = 0; replica < step.elements.size(); ++replica) {
    auto& element = step.elements[replica];
    if (element) {
      // For later steps in which only other workers have data.
      if (!pattern_) pattern_ = without_rows(*element);
      continue;
    }
    element = pattern(step);
    for (data::Leaf& leaf : element->leaves) {
      if (auto* tensor = leaf.as<at::Tensor>()) *tensor = tensor->to(devices_[replica]);
    }
  }
}

void RepeatedBatches::fill(Step& step) {
  step.is_past_end = !step.has_data();
  const auto first = std::find_if(step.elements.begin(), step.elements.end(), has_rows);
  // The replica may write to its batch before it is repeated, so what is kept is a copy.
  if (first != step.elements.end() && keeps_last_) last_ = copy_of(**first);
  const data::Element* source = first != step.elements.end() ? &**first : last_ ? &*last_ : nullptr;
  if (source == nullptr) return;
  for (auto& element : step.elements) {
    if (!has_rows(element)) element = copy_of(*source);
  }
}

}  // namespace lockstep::detail
