#include "lockstep/comm/engines/shm/shared_descriptor.h"

#include <cstring>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/reduce/tensor_parts.h"

namespace lockstep::comm {
namespace {

constexpr uint64_t kNowhere = ~0ull;

struct TensorDescriptor {
  uint64_t data = kNowhere;
  int64_t sizes[kMaxDims] = {};
};

int64_t bytes_of(const FlatTensors::Piece& piece) {
  return piece.count * static_cast<int64_t>(c10::elementSize(piece.dtype));
}

/// Returns the tensor itself where other processes can read it, else a copy in the arena.
at::Tensor visible(SharedArena& arena, const at::Tensor& tensor) {
  if (tensor.is_cpu() && tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg() &&
      (tensor.numel() == 0 || arena.contains(tensor.data_ptr()))) {
    return tensor;
  }
  const SharedAllocation shared(true);
  at::Tensor copy = at::empty(tensor.sizes(), tensor.options().device(at::kCPU).requires_grad(false));
  copy.copy_(tensor);
  LOCKSTEP_CHECK_COLLECTIVE(copy.numel() == 0 || arena.contains(copy.data_ptr()),
                            "[shm] shared memory is full: bytes=", copy.nbytes());
  return copy;
}

at::Tensor tensor_at(const SharedMemory& memory, int worker, const TensorDescriptor& descriptor,
                     const at::Tensor& like) {
  const auto options = like.options().device(at::kCPU).requires_grad(false);
  const at::IntArrayRef sizes(descriptor.sizes, static_cast<size_t>(like.dim()));
  if (descriptor.data == kNowhere) return at::empty(sizes, options);
  return at::from_blob(memory.at(worker, descriptor.data), sizes, options);
}

}  // namespace

StagedFlatTensors::StagedFlatTensors(SharedArena& arena, const FlatTensors& flat)
    : arena_(arena), original_(flat), staged_(flat.pieces(), flat.bytes()) {
  for (auto& piece : staged_.pieces()) {
    const char* const input = piece.input;
    const int64_t bytes = bytes_of(piece);
    if (bytes == 0) continue;
    if (!arena.contains(input)) {
      void* copy = arena.allocate(static_cast<size_t>(bytes));
      LOCKSTEP_CHECK_COLLECTIVE(copy != nullptr, "[shm] shared memory is full: bytes=", bytes);
      copies_.push_back(copy);
      std::memcpy(copy, input, static_cast<size_t>(bytes));
      piece.input = static_cast<const char*>(copy);
    }
    if (piece.output == nullptr || arena.contains(piece.output)) continue;
    // Where the input was copied, the copy also holds the result: each element is read before it is written.
    piece.output = const_cast<char*>(piece.input);
    if (piece.input == input) {
      copies_.push_back(arena.allocate(static_cast<size_t>(bytes)));
      LOCKSTEP_CHECK_COLLECTIVE(copies_.back() != nullptr, "[shm] shared memory is full: bytes=", bytes);
      piece.output = static_cast<char*>(copies_.back());
    }
  }
}

StagedFlatTensors::~StagedFlatTensors() {
  for (void* copy : copies_) arena_.free(copy);
}

void StagedFlatTensors::deliver() const {
  const auto originals = original_.pieces();
  const auto staged = staged_.pieces();
  for (size_t i = 0; i < originals.size(); ++i) {
    if (originals[i].output == staged[i].output || originals[i].output == nullptr) continue;
    std::memcpy(originals[i].output, staged[i].output, static_cast<size_t>(bytes_of(originals[i])));
  }
}

void StagedFlatTensors::write_descriptor(char* to) const {
  auto* descriptors = reinterpret_cast<PieceDescriptor*>(to);
  for (const auto& piece : staged_.pieces()) {
    const bool empty = piece.count == 0;
    *descriptors++ = {empty ? kNowhere : arena_.offset_of(piece.input),
                      empty || piece.output == nullptr ? kNowhere : arena_.offset_of(piece.output)};
  }
}

FlatTensors flat_tensors_of(const SharedMemory& memory, int worker, const char* descriptor, const FlatTensors& mine) {
  const auto* descriptors = reinterpret_cast<const PieceDescriptor*>(descriptor);
  FlatTensors theirs(mine.pieces(), mine.bytes());
  for (auto& piece : theirs.pieces()) {
    const PieceDescriptor& place = *descriptors++;
    piece.input = place.input == kNowhere ? nullptr : memory.at(worker, place.input);
    piece.output = place.output == kNowhere ? nullptr : memory.at(worker, place.output);
  }
  return theirs;
}

StagedTensors::StagedTensors(SharedArena& arena, at::TensorList tensors) : arena_(arena) {
  for (const at::Tensor& tensor : tensors) {
    for_each_part(tensor, [&](const at::Tensor& part) {
      LOCKSTEP_CHECK_VALUE(part.dim() <= kMaxDims, "[shm] tensors of up to ", kMaxDims,
                           " dimensions can be exchanged: dim=", part.dim());
      parts_.push_back(visible(arena, part.detach()));
    });
  }
}

size_t StagedTensors::descriptor_bytes() const { return parts_.size() * sizeof(TensorDescriptor); }

void StagedTensors::write_descriptor(char* to) const {
  auto* descriptors = reinterpret_cast<TensorDescriptor*>(to);
  for (const at::Tensor& part : parts_) {
    TensorDescriptor descriptor;
    if (part.numel() > 0) descriptor.data = arena_.offset_of(part.data_ptr());
    std::copy(part.sizes().begin(), part.sizes().end(), descriptor.sizes);
    *descriptors++ = descriptor;
  }
}

std::vector<at::Tensor> tensors_of(const SharedMemory& memory, int worker, const char* descriptor,
                                   at::TensorList mine) {
  const auto* descriptors = reinterpret_cast<const TensorDescriptor*>(descriptor);
  std::vector<at::Tensor> theirs;
  for (const at::Tensor& like : mine) {
    theirs.push_back(
        from_parts(like, [&](const at::Tensor& part) { return tensor_at(memory, worker, *descriptors++, part); }));
  }
  return theirs;
}

}  // namespace lockstep::comm
