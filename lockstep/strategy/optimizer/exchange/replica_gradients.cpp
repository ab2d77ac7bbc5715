#include "lockstep/strategy/optimizer/exchange/replica_gradients.h"

#include <algorithm>

#include "lockstep/strategy/optimizer/exchange/gradient_gate.h"

namespace lockstep::detail {

Presence presence_of(const at::Tensor& gradient) {
  return !gradient.defined() ? kAbsent : gradient.is_sparse() ? kSparse : kDense;
}

void ReplicaGradients::reserve(size_t num_parameters) {
  parameters.reserve(num_parameters);
  gradients.reserve(num_parameters);
  values.reserve(num_parameters);
}

void ReplicaGradients::add_parameter(at::Tensor values_here, at::Tensor gradient, bool reduced) {
  Parameter added;
  added.presence = presence_of(gradient);
  added.reduced = reduced;
  if (values_here.defined()) {
    added.data = static_cast<char*>(values_here.data_ptr());
    if (added.presence == kDense) added.gradient = gradient_memory(gradient);
  }
  parameters.push_back(added);
  gradients.push_back(std::move(gradient));
  values.push_back(std::move(values_here));
}

std::vector<char> presence(const AllGradients& all) {
  std::vector<char> present(all[0]->parameters.size(), kAbsent);
  for (const ReplicaGradients* replica : all) {
    for (size_t p = 0; p < present.size(); ++p) {
      present[p] = std::max<char>(present[p], static_cast<char>(replica->parameters[p].presence));
    }
  }
  return present;
}

bool is_sum_on_all(const AllGradients& all, size_t parameter) {
  return std::all_of(all.begin(), all.end(),
                     [&](const ReplicaGradients* replica) { return replica->parameters[parameter].reduced; });
}

std::vector<char> sums_on_all(const AllGradients& all) {
  std::vector<char> sums(all[0]->parameters.size(), 0);
  for (size_t p = 0; p < sums.size(); ++p) sums[p] = is_sum_on_all(all, p) ? 1 : 0;
  return sums;
}

bool is_added(const AllGradients& all, size_t replica, size_t parameter) {
  return replica == 0 || !all[replica]->parameters[parameter].reduced;
}

}  // namespace lockstep::detail
