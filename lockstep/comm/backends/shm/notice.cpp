#include "lockstep/comm/backends/shm/notice.h"

#include <cstring>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/reduce/tensor_parts.h"

namespace lockstep::comm {
namespace {

constexpr uint64_t kNowhere = ~0ull;

struct TensorNotice {
  uint64_t data = kNowhere;
  int64_t sizes[kMaxDims] = {};
};

int64_t bytes_of(const Parcel::Piece& piece) {
  return piece.count * static_cast<int64_t>(c10::elementSize(piece.dtype));
}

/// The tensor itself where others can read it, else a copy in the arena.
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

at::Tensor tensor_at(const SharedMemory& memory, int worker, const TensorNotice& notice, const at::Tensor& like) {
  const auto options = like.options().device(at::kCPU).requires_grad(false);
  const at::IntArrayRef sizes(notice.sizes, static_cast<size_t>(like.dim()));
  if (notice.data == kNowhere) return at::empty(sizes, options);
  return at::from_blob(memory.at(worker, notice.data), sizes, options);
}

}  // namespace

StagedParcel::StagedParcel(SharedArena& arena, const Parcel& parcel)
    : arena_(arena), original_(parcel), staged_(parcel.pieces(), parcel.bytes()) {
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
    // Where the input was copied, its copy takes the result too: each element is read before it is written.
    piece.output = const_cast<char*>(piece.input);
    if (piece.input == input) {
      copies_.push_back(arena.allocate(static_cast<size_t>(bytes)));
      LOCKSTEP_CHECK_COLLECTIVE(copies_.back() != nullptr, "[shm] shared memory is full: bytes=", bytes);
      piece.output = static_cast<char*>(copies_.back());
    }
  }
}

StagedParcel::~StagedParcel() {
  for (void* copy : copies_) arena_.free(copy);
}

void StagedParcel::deliver() const {
  const auto originals = original_.pieces();
  const auto staged = staged_.pieces();
  for (size_t i = 0; i < originals.size(); ++i) {
    if (originals[i].output == staged[i].output || originals[i].output == nullptr) continue;
    std::memcpy(originals[i].output, staged[i].output, static_cast<size_t>(bytes_of(originals[i])));
  }
}

void StagedParcel::write_notice(char* to) const {
  auto* notices = reinterpret_cast<PieceNotice*>(to);
  for (const auto& piece : staged_.pieces()) {
    const bool empty = piece.count == 0;
    *notices++ = {empty ? kNowhere : arena_.offset_of(piece.input),
                  empty || piece.output == nullptr ? kNowhere : arena_.offset_of(piece.output)};
  }
}

Parcel parcel_of(const SharedMemory& memory, int worker, const char* notice, const Parcel& mine) {
  const auto* notices = reinterpret_cast<const PieceNotice*>(notice);
  Parcel theirs(mine.pieces(), mine.bytes());
  for (auto& piece : theirs.pieces()) {
    const PieceNotice& place = *notices++;
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

size_t StagedTensors::notice_bytes() const { return parts_.size() * sizeof(TensorNotice); }

void StagedTensors::write_notice(char* to) const {
  auto* notices = reinterpret_cast<TensorNotice*>(to);
  for (const at::Tensor& part : parts_) {
    TensorNotice notice;
    if (part.numel() > 0) notice.data = arena_.offset_of(part.data_ptr());
    std::copy(part.sizes().begin(), part.sizes().end(), notice.sizes);
    *notices++ = notice;
  }
}

std::vector<at::Tensor> tensors_of(const SharedMemory& memory, int worker, const char* notice, at::TensorList mine) {
  const auto* notices = reinterpret_cast<const TensorNotice*>(notice);
  std::vector<at::Tensor> theirs;
  for (const at::Tensor& like : mine) {
    theirs.push_back(
        from_parts(like, [&](const at::Tensor& part) { return tensor_at(memory, worker, *notices++, part); }));
  }
  return theirs;
}

}  // namespace lockstep::comm
