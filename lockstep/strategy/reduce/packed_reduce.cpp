#include <algorithm>
#include <map>

#include <ATen/ATen.h>

#include "lockstep/strategy/reduce/cross_device_ops.h"

namespace lockstep {
namespace {

/// Values that can be concatenated have the same key.
using PackKey = std::pair<at::ScalarType, std::vector<std::string>>;

template <class Components>
PackKey key_of(const Components& value) {
  PackKey key{value.tensors[0].scalar_type(), {value.device.str()}};
  for (const at::Tensor& tensor : value.tensors) key.second.push_back(tensor.device().str());
  return key;
}

std::vector<int64_t> pack_sizes(int64_t total, int num_packs) {
  std::vector<int64_t> sizes(static_cast<size_t>(num_packs), total / num_packs);
  sizes.back() += total % num_packs;
  std::erase(sizes, 0);
  return sizes;
}

}  // namespace

std::vector<at::Tensor> CrossDeviceOps::reduce_in_packs(ReduceOp op, const std::vector<Components>& values,
                                                        int num_packs) const {
  if (num_packs == 0) return CrossDeviceOps::do_batch_reduce(op, values);
  std::map<PackKey, std::vector<size_t>> alike;
  for (size_t i = 0; i < values.size(); ++i) alike[key_of(values[i])].push_back(i);
  std::vector<at::Tensor> results(values.size());
  for (const auto& [key, members] : alike) {
    const size_t num_components = values[members[0]].tensors.size();
    std::vector<int64_t> counts;
    for (const size_t i : members) counts.push_back(values[i].tensors[0].numel());
    std::vector<at::Tensor> flat;
    for (size_t r = 0; r < num_components; ++r) {
      std::vector<at::Tensor> parts;
      for (const size_t i : members) parts.push_back(values[i].tensors[r].reshape(-1));
      flat.push_back(at::cat(parts));
    }
    std::vector<at::Tensor> reduced;
    int64_t begin = 0;
    for (const int64_t size : pack_sizes(flat[0].numel(), num_packs)) {
      std::vector<at::Tensor> pack;
      for (const at::Tensor& component : flat) pack.push_back(component.narrow(0, begin, size));
      reduced.push_back(do_reduce(op, pack, values[members[0]].device));
      begin += size;
    }
    if (reduced.empty()) reduced.push_back(do_reduce(op, flat, values[members[0]].device));
    const std::vector<at::Tensor> parts = at::cat(reduced).split_with_sizes(counts);
    for (size_t k = 0; k < members.size(); ++k) {
      results[members[k]] = parts[k].reshape(values[members[k]].tensors[0].sizes()).clone();
    }
  }
  return results;
}

}  // namespace lockstep
