#include "lockstep/strategy/input/step_reader.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/data/transforms/batching/rows.h"
#include "lockstep/device/device_scope.h"

namespace lockstep::detail {
namespace {

/// Returns a batch of no rows like `batch`, in memory of its own, or nothing if the element is not a batch.
std::optional<data::Element> without_rows(const data::Element& batch) {
  return data::detail::empty_rows(data::ElementSpec::of(batch));
}

}  // namespace

int DistributedInput::num_replicas() const {
  size_t count = 0;
  for (const InputPipeline& pipeline : pipelines) count += pipeline.devices.size();
  return static_cast<int>(count);
}

bool Step::has_data() const {
  return std::any_of(elements.begin(), elements.end(), [](const auto& element) { return element.has_value(); });
}

StepReader::StepReader(const InputPipeline& pipeline, const data::Iteration& iteration)
    : num_replicas_(pipeline.devices.size()), device_(pipeline.is_placed ? pipeline.names.at(0) : "") {
  std::optional<DeviceScope> scope;
  if (!device_.empty()) scope.emplace(device_);
  iterator_ = pipeline.node->iterator(iteration);
}

void StepReader::prepare() {
  if (prepared_.size() == num_replicas_) return;
  std::optional<DeviceScope> scope;
  if (!device_.empty()) scope.emplace(device_);
  while (prepared_.size() < num_replicas_) {
    data::Element element;
    if (iterator_->next(element)) {
      prepared_.emplace_back(std::move(element));
    } else {
      prepared_.emplace_back();
    }
  }
}

void StepReader::read(Step& step) {
  prepare();
  for (auto& element : prepared_) step.elements.push_back(std::move(element));
  prepared_.clear();
}

int64_t StepReader::skip(int64_t count) {
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

}  // namespace lockstep::detail
