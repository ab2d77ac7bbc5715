#include "lockstep/train/trainer/trainer_input.h"

#include <ATen/ATen.h>

namespace lockstep::detail {

void SpareRows::fill(std::vector<Batch>& batches) {
  for (const Batch& batch : batches) {
    if (batch.rows() == 0) continue;
    last_ = batch.inputs;
    break;
  }
  for (Batch& batch : batches) {
    if (batch.rows() > 0) continue;
    for (size_t i = 0; i < batch.inputs.size(); ++i) {
      const at::Tensor& input = batch.inputs[i];
      std::vector<int64_t> sizes = input.sizes().vec();
      sizes[0] = 1;
      batch.spare.push_back(last_.empty() ? at::zeros(sizes, input.options())
                                          : last_[i].narrow(0, 0, 1).to(input.device()));
    }
  }
}

}  // namespace lockstep::detail
