#pragma once

#include <algorithm>
#include <utility>

namespace lockstep::detail {

/// Internal: removes the step that was not called for longest from a map of steps, and returns it. A step has the
/// number of its last call as `last_call`.
template <class Steps>
typename Steps::mapped_type drop_oldest(Steps& steps) {
  const auto oldest = std::min_element(steps.begin(), steps.end(), [](const auto& a, const auto& b) {
    return a.second->last_call < b.second->last_call;
  });
  typename Steps::mapped_type dropped = std::move(oldest->second);
  steps.erase(oldest);
  return dropped;
}

}  // namespace lockstep::detail
