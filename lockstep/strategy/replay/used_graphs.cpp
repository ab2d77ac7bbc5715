#include "lockstep/strategy/replay/used_graphs.h"

#include <algorithm>
#include <atomic>

namespace lockstep::detail {
namespace {

std::atomic<UsedGraphs*> current_used_graphs{nullptr};

}  // namespace

UsedGraphs::UsedGraphs() { current_used_graphs.store(this); }

UsedGraphs::~UsedGraphs() { current_used_graphs.store(nullptr); }

bool UsedGraphs::contains(const at::Tensor& loss) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return loss.grad_fn() && std::find(graphs_.begin(), graphs_.end(), loss.grad_fn()) != graphs_.end();
}

void UsedGraphs::note(const at::Tensor& loss) {
  UsedGraphs* const current = current_used_graphs.load();
  if (current == nullptr || !loss.grad_fn()) return;
  const std::lock_guard<std::mutex> lock(current->mutex_);
  current->graphs_.push_back(loss.grad_fn());
}

}  // namespace lockstep::detail
