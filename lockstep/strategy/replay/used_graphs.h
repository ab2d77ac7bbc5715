#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

namespace lockstep::detail {

/// Internal: the losses whose graphs were used up by a backward pass while a pure step is traced. A result of the step
/// among them needs no graph.
class UsedGraphs {
 public:
  UsedGraphs();
  ~UsedGraphs();
  UsedGraphs(const UsedGraphs&) = delete;
  UsedGraphs& operator=(const UsedGraphs&) = delete;

  /// Detaches the results among them; returns whether another result has a graph.
  bool detach(std::vector<std::vector<at::Tensor>>& results) const;

  /// Notes that the graph of a loss was used up. Any thread.
  static void note(const at::Tensor& loss);

 private:
  bool contains(const at::Tensor& loss) const;

  std::vector<std::shared_ptr<torch::autograd::Node>> graphs_;
};

}  // namespace lockstep::detail
