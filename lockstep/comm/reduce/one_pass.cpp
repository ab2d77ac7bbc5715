#include "lockstep/comm/reduce/one_pass.h"

#include <algorithm>
#include <vector>

#include "lockstep/comm/reduce/cuda/one_pass_reduction.h"

namespace lockstep::comm {

bool has_one_pass(at::TensorList tensors, ReduceOp op, size_t num_ranks) {
  return !tensors.empty() && std::all_of(tensors.begin(), tensors.end(), [&](const at::Tensor& tensor) {
    return tensor.is_cuda() && has_one_pass_kernel(tensor.scalar_type(), op, num_ranks);
  });
}

bool can_reduce_in_one_pass(std::span<const CollectiveCall* const> calls, ReduceOp op) {
  std::vector<c10::Device> devices;
  std::vector<at::ScalarType> dtypes;
  for (const CollectiveCall* call : calls) {
    const c10::Device device = call->inputs[0].device();
    const auto is_elsewhere = [&](const at::Tensor& tensor) { return tensor.device() != device; };
    if (std::any_of(call->inputs.begin(), call->inputs.end(), is_elsewhere)) return false;
    if (std::find(devices.begin(), devices.end(), device) == devices.end()) devices.push_back(device);
  }
  for (const at::Tensor& tensor : calls[0]->inputs) {
    if (std::find(dtypes.begin(), dtypes.end(), tensor.scalar_type()) == dtypes.end())
      dtypes.push_back(tensor.scalar_type());
  }
  return can_reduce_in_one_pass(devices, dtypes, op, calls.size());
}

void reduce_part_in_one_pass(c10::Device device, std::span<const FlatTensors* const> flats,
                             std::span<const FlatTensors* const> targets, ReduceOp op, int64_t begin, int64_t end) {
  std::vector<PieceToReduce> pieces;
  for (size_t i = 0; i < flats[0]->pieces().size(); ++i) {
    const FlatTensors::Piece& own = flats[0]->pieces()[i];
    const auto width = static_cast<int64_t>(c10::elementSize(own.dtype));
    const int64_t from = std::max(begin - own.offset, int64_t(0));
    const int64_t to = std::min(end - own.offset, own.count * width);
    if (from >= to) continue;
    PieceToReduce piece{.dtype = own.dtype, .count = (to - from) / width};
    for (const FlatTensors* flat : flats) piece.inputs.push_back(flat->pieces()[i].input + from);
    for (const FlatTensors* target : targets) piece.outputs.push_back(target->pieces()[i].output + from);
    pieces.push_back(std::move(piece));
  }
  reduce_in_one_pass(device, op, pieces);
}

void reduce_share_in_one_pass(std::span<const FlatTensors* const> flats, ReduceOp op, int64_t begin,
                              const at::Tensor& output) {
  PieceToReduce piece{.dtype = output.scalar_type(), .count = output.numel()};
  const int64_t skip = begin * static_cast<int64_t>(output.element_size());
  for (const FlatTensors* flat : flats) piece.inputs.push_back(flat->pieces()[0].input + skip);
  piece.outputs.push_back(output.data_ptr());
  reduce_in_one_pass(output.device(), op, {piece});
}

}  // namespace lockstep::comm
