#include "lockstep/strategy/optimizer/update/buffer_average.h"

#include <map>

#include "lockstep/comm/reduce/reduce_kernel.h"

namespace lockstep::detail {

void average_published_buffers(const std::vector<at::Tensor>& buffers, int reader, const AllGradients& all) {
  size_t b = 0;
  for (const at::Tensor& buffer : buffers) {
    if (!has_plain_memory(buffer)) continue;
    if (b % all.size() == static_cast<size_t>(reader) && buffer.numel() > 0) {
      std::vector<const void*> sources;
      std::vector<void*> targets;
      for (const ReplicaGradients* replica : all) {
        sources.push_back(replica->buffers[b]);
        targets.push_back(replica->buffers[b]);
      }
      comm::reduce_kernel(buffer.scalar_type(), ReduceOp::Mean, sources.size())(sources, targets, buffer.numel());
    }
    ++b;
  }
}

void average_other_buffers(const comm::Group& group, const std::vector<at::Tensor>& buffers, bool published) {
  std::map<c10::DeviceType, std::vector<at::Tensor>> others;
  for (const at::Tensor& buffer : buffers) {
    if (!published || !has_plain_memory(buffer)) others[buffer.device().type()].push_back(buffer);
  }
  for (const auto& [type, of_type] : others) group.all_reduce_(of_type, ReduceOp::Mean);
}

}  // namespace lockstep::detail
