#include "lockstep/strategy/replay/captured_step.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace lockstep::detail {
namespace {

bool has_elements(const at::Tensor& tensor) { return tensor.defined() && tensor.numel() > 0; }

bool is_copied_by_graph(const at::Tensor& output, c10::Device device) {
  return has_elements(output) && output.device() == device && output.layout() == at::kStrided &&
         output.is_contiguous() && !output.is_conj() && !output.is_neg();
}

}  // namespace

/// One recording at a time: what is called in the meantime is watched in all threads.
std::mutex& recording_mutex() {
  static std::mutex mutex;
  return mutex;
}

CapturedStep::CapturedStep(c10::Device device, Recorded recorded) : device_(device), recorded_(std::move(recorded)) {
  note_written();
  finish_graph();
}

/// Arguments whose static tensors have another version than a new tensor have been written to.
void CapturedStep::note_written() {
  for (const auto& of_replica : recorded_.inputs) {
    std::vector<char>& written = written_.emplace_back();
    for (const at::Tensor& input : of_replica) {
      written.push_back(input.defined() && input._version() > 0 ? 1 : 0);
      writes_arguments_ = writes_arguments_ || written.back() != 0;
    }
  }
}

/// Copies into and out of the graph are part of it, for all contiguous tensors.
void CapturedStep::finish_graph() {
  std::vector<at::Tensor> inputs;
  std::vector<at::Tensor> outputs;
  for (const auto& of_replica : recorded_.inputs) {
    for (const at::Tensor& input : of_replica) {
      if (has_elements(input)) inputs.push_back(input);
    }
  }
  for (const auto& of_replica : recorded_.outputs) {
    for (const at::Tensor& output : of_replica) {
      if (is_copied_by_graph(output, device_)) outputs.push_back(output);
    }
  }
  recorded_.graph->finish(std::move(inputs), std::move(outputs));
}

bool CapturedStep::overlap(const Tensors& arguments) const {
  if (!writes_arguments_) return false;
  std::vector<const void*> memory;
  for (const auto& of_replica : arguments) {
    for (const at::Tensor& argument : of_replica) {
      if (!argument.defined() || argument.numel() == 0) continue;
      memory.push_back(argument.storage().unsafeGetStorageImpl());
      const auto last = std::prev(memory.end());
      if (std::find(memory.begin(), last, *last) != last) return true;
    }
  }
  return false;
}

void CapturedStep::replay(const Tensors& arguments, Tensors& results) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> sources;
  for (const auto& of_replica : arguments) {
    for (const at::Tensor& argument : of_replica) {
      if (has_elements(argument))
        sources.push_back(argument.to(device_, /*non_blocking=*/true).resolve_conj().resolve_neg().contiguous());
    }
  }
  results = recorded_.outputs;
  std::vector<at::Tensor> targets;
  for (auto& of_replica : results) {
    for (at::Tensor& result : of_replica) {
      if (!is_copied_by_graph(result, device_)) continue;
      result = at::empty_like(result);
      targets.push_back(result);
    }
  }
  {
    // A recording has the generator of the device.
    const std::lock_guard<std::mutex> while_nothing_is_recorded(recording_mutex());
    recorded_.graph->replay(sources, targets);
  }
  copy_the_others(arguments, results);
}

/// What the graph does not copy itself: results that are not contiguous, and arguments that the function has written.
void CapturedStep::copy_the_others(const Tensors& arguments, Tensors& results) const {
  for (size_t replica = 0; replica < results.size(); ++replica) {
    for (size_t i = 0; i < results[replica].size(); ++i) {
      at::Tensor& result = results[replica][i];
      if (result.defined() && result.is_same(recorded_.outputs[replica][i])) result = result.clone();
    }
  }
  for (size_t replica = 0; writes_arguments_ && replica < arguments.size(); ++replica) {
    for (size_t i = 0; i < arguments[replica].size(); ++i) {
      const at::Tensor& argument = arguments[replica][i];
      if (written_[replica][i] != 0 && argument.device() == device_) argument.copy_(recorded_.inputs[replica][i]);
    }
  }
}

}  // namespace lockstep::detail
