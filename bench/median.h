#pragma once

#include <algorithm>
#include <chrono>
#include <vector>

namespace lockstep::bench {

/// Returns the median of `samples`; they are reordered.
inline double median(std::vector<double>& samples) {
  const auto middle = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
  std::nth_element(samples.begin(), middle, samples.end());
  return *middle;
}

/// Returns the seconds that one call of `work` takes, as the average of `repeats` calls.
template <class Work>
double time_of(int repeats, Work&& work) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < repeats; ++i) work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / repeats;
}

}  // namespace lockstep::bench
