#include "lockstep/comm/reduce/flat_tensors.h"

#include <algorithm>

#include <ATen/ops/empty.h>

namespace lockstep::comm {
namespace {

int64_t align(int64_t bytes) {
  return (bytes + FlatTensors::kAlignment - 1) / FlatTensors::kAlignment * FlatTensors::kAlignment;
}

bool is_plain(const at::Tensor& tensor) { return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg(); }

at::Tensor plain(const at::Tensor& tensor) { return tensor.resolve_conj().resolve_neg().contiguous(); }

}  // namespace

FlatTensors::FlatTensors(at::TensorList inputs, at::TensorList outputs) {
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

void FlatTensors::deliver() const {
  for (const auto& [copy, target] : copies_) {
    if (target.defined()) target.copy_(copy);
  }
}

}  // namespace lockstep::comm
