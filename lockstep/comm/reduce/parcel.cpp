#include "lockstep/comm/reduce/parcel.h"

#include <algorithm>

#include <ATen/ops/empty.h>

#include "lockstep/comm/reduce/reduce_kernel.h"

namespace lockstep::comm {
namespace {

int64_t align(int64_t bytes) { return (bytes + Parcel::kAlignment - 1) / Parcel::kAlignment * Parcel::kAlignment; }

bool is_plain(const at::Tensor& tensor) { return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg(); }

at::Tensor plain(const at::Tensor& tensor) { return tensor.resolve_conj().resolve_neg().contiguous(); }

}  // namespace

Parcel::Parcel(at::TensorList inputs, at::TensorList outputs) {
  pieces_.reserve(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto& input = inputs[i];
    Piece piece;
    piece.count = input.numel();
    piece.dtype = input.scalar_type();
    piece.offset = bytes_;
    bytes_ = align(bytes_ + static_cast<int64_t>(input.nbytes()));
    const char* copied = nullptr;
    if (is_plain(input)) {
      piece.input = static_cast<const char*>(input.data_ptr());
    } else {
      copies_.emplace_back(plain(input), at::Tensor());
      copied = piece.input = static_cast<const char*>(copies_.back().first.data_ptr());
    }
    if (!outputs.empty()) {
      const auto& output = outputs[i];
      if (is_plain(output)) {
        piece.output = static_cast<char*>(output.data_ptr());
      } else if (copied != nullptr && output.is_same(input)) {
        copies_.back().second = output;
        piece.output = static_cast<char*>(copies_.back().first.data_ptr());
      } else {
        copies_.emplace_back(at::empty(output.sizes(), output.options()), output);
        piece.output = static_cast<char*>(copies_.back().first.data_ptr());
      }
    }
    pieces_.push_back(piece);
  }
}

void Parcel::deliver() const {
  for (const auto& [copy, target] : copies_) {
    if (target.defined()) target.copy_(copy);
  }
}

void reduce_part(std::span<const Parcel* const> parcels, std::span<const Parcel* const> targets, ReduceOp op,
                 int64_t begin, int64_t end) {
  c10::SmallVector<const void*, 16> inputs(parcels.size());
  c10::SmallVector<void*, 16> outputs(targets.size());
  const auto pieces = parcels[0]->pieces();
  for (size_t i = 0; i < pieces.size(); ++i) {
    const auto& piece = pieces[i];
    const auto width = static_cast<int64_t>(c10::elementSize(piece.dtype));
    const int64_t from = std::max(begin - piece.offset, int64_t(0));
    const int64_t to = std::min(end - piece.offset, piece.count * width);
    if (from >= to) continue;
    for (size_t r = 0; r < parcels.size(); ++r) inputs[r] = parcels[r]->pieces()[i].input + from;
    for (size_t r = 0; r < targets.size(); ++r) outputs[r] = targets[r]->pieces()[i].output + from;
    const auto kernel = reduce_kernel(piece.dtype, op, parcels.size());
    kernel({inputs.data(), inputs.size()}, {outputs.data(), outputs.size()}, (to - from) / width);
  }
}

}  // namespace lockstep::comm
