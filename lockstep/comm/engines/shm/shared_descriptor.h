#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/comm/reduce/flat_tensors.h"
#include "lockstep/comm/shared/shared_memory.h"

/// How a rank describes to ranks of other processes where its tensors are: as offsets in the arena of its own process.
namespace lockstep::comm {

/// One piece of flat tensors.
struct PieceDescriptor {
  uint64_t input = 0;
  uint64_t output = 0;
};

/// Flat tensors staged in the arena of the process: memory that other processes cannot see is copied into the arena,
/// and results are copied back by `deliver`.
class StagedFlatTensors {
 public:
  StagedFlatTensors(SharedArena& arena, const FlatTensors& flat);
  ~StagedFlatTensors();
  StagedFlatTensors(const StagedFlatTensors&) = delete;
  StagedFlatTensors& operator=(const StagedFlatTensors&) = delete;

  /// The flat tensors as other processes see them: all in the arena.
  const FlatTensors& flat() const { return staged_; }
  /// Copies results to the original outputs. Called after depart.
  void deliver() const;

  static size_t descriptor_bytes(const FlatTensors& flat) { return flat.pieces().size() * sizeof(PieceDescriptor); }
  void write_descriptor(char* to) const;

 private:
  SharedArena& arena_;
  const FlatTensors& original_;
  FlatTensors staged_;
  std::vector<void*> copies_;
};

/// Returns the flat tensors of a rank of another process: shaped like `mine`, at the places in its descriptor.
FlatTensors flat_tensors_of(const SharedMemory& memory, int worker, const char* descriptor, const FlatTensors& mine);

/// A list of tensors staged in the arena: dense, contiguous, on the CPU. Sparse ones are indices and values.
class StagedTensors {
 public:
  StagedTensors(SharedArena& arena, at::TensorList tensors);

  size_t descriptor_bytes() const;
  void write_descriptor(char* to) const;

 private:
  SharedArena& arena_;
  std::vector<at::Tensor> parts_;
};

/// Returns the tensors of a rank of another process: like `mine`, with the sizes and places in its descriptor.
std::vector<at::Tensor> tensors_of(const SharedMemory& memory, int worker, const char* descriptor, at::TensorList mine);

}  // namespace lockstep::comm
