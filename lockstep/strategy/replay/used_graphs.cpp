#include "lockstep/strategy/replay/used_graphs.h"

#include <algorithm>
#include <atomic>

namespace lockstep::detail {
namespace {

std::mutex tracing_mutex;
std::vector<UsedGraphs*> tracing;
/// How many there are, for steps that are not traced.
std::atomic<int> num_tracing{0};

}  // namespace

UsedGraphs::UsedGraphs() {
  const std::lock_guard<std::mutex> lock(tracing_mutex);
  tracing.push_back(this);
  ++num_tracing;
}

UsedGraphs::~UsedGraphs() {
  const std::lock_guard<std::mutex> lock(tracing_mutex);
  std::erase(tracing, this);
  --num_tracing;
}

bool UsedGraphs::contains(const at::Tensor& loss) const {
  const std::lock_guard<std::mutex> lock(tracing_mutex);
  return loss.grad_fn() && std::find(graphs_.begin(), graphs_.end(), loss.grad_fn()) != graphs_.end();
}

bool UsedGraphs::detach(std::vector<std::vector<at::Tensor>>& results) const {
  bool has_graph = false;
  for (auto& of_replica : results) {
    for (at::Tensor& result : of_replica) {
      if (!result.defined() || !result.requires_grad()) continue;
      if (contains(result)) {
        result = result.detach();
      } else {
        has_graph = true;
      }
    }
  }
  return has_graph;
}

void UsedGraphs::note(const at::Tensor& loss) {
  if (num_tracing.load() == 0 || !loss.grad_fn()) return;
  const std::lock_guard<std::mutex> lock(tracing_mutex);
  for (UsedGraphs* const used : tracing) used->graphs_.push_back(loss.grad_fn());
}

}  // namespace lockstep::detail
