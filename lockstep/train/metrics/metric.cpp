#include "lockstep/train/metrics/metric.h"

#include <ATen/ATen.h>

#include "lockstep/base/error.h"

namespace lockstep {

Metric::Metric(std::string name) : name_(std::move(name)) {
  LOCKSTEP_CHECK_VALUE(!name_.empty(), "[Metric] a metric needs a name: name=\"\"; it is the name in logs");
  LOCKSTEP_CHECK_VALUE(name_.find('.') == std::string::npos,
                       "[Metric] a name has no point, which separates the names of states: name=", name_);
}

MetricState Metric::merge(const MetricState& a, const MetricState& b) const {
  MetricState merged;
  for (size_t i = 0; i < a.size(); ++i) merged.push_back(a[i] + b[i]);
  return merged;
}

}  // namespace lockstep
