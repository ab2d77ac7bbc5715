#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/comm/backends/shm/shared_memory.h"
#include "lockstep/comm/reduce/parcel.h"

/// Inside: how a rank tells ranks of other processes where its tensors lie. Positions are offsets in its own arena.
namespace lockstep::comm {

/// One piece of a parcel, as it travels.
struct PieceNotice {
  uint64_t input = 0;
  uint64_t output = 0;
};

/// Brings parts of a parcel that are not in the arena of the process there, and back.
///
/// Memory that other processes cannot see is copied into the arena before they look, and from there after they are
/// done.
class StagedParcel {
 public:
  StagedParcel(SharedArena& arena, const Parcel& parcel);
  ~StagedParcel();
  StagedParcel(const StagedParcel&) = delete;
  StagedParcel& operator=(const StagedParcel&) = delete;

  /// The parcel as others see it: all of it in the arena.
  const Parcel& parcel() const { return staged_; }
  /// Copies results to where they belong. After depart.
  void deliver() const;

  static size_t notice_bytes(const Parcel& parcel) { return parcel.pieces().size() * sizeof(PieceNotice); }
  void write_notice(char* to) const;

 private:
  SharedArena& arena_;
  const Parcel& original_;
  Parcel staged_;
  std::vector<void*> copies_;
};

/// The parcel of a rank of another process: like `mine`, but where its notice says.
Parcel parcel_of(const SharedMemory& memory, int worker, const char* notice, const Parcel& mine);

/// A list of tensors as others see it: dense, contiguous, on the CPU, in the arena. Sparse ones as indices and values.
class StagedTensors {
 public:
  StagedTensors(SharedArena& arena, at::TensorList tensors);

  size_t notice_bytes() const;
  void write_notice(char* to) const;

 private:
  SharedArena& arena_;
  std::vector<at::Tensor> parts_;
};

/// The tensors of a rank of another process: like `mine`, but with the sizes and places of its notice.
std::vector<at::Tensor> tensors_of(const SharedMemory& memory, int worker, const char* notice, at::TensorList mine);

}  // namespace lockstep::comm
