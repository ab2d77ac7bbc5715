#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/api.h"
#include "lockstep/state/checkpoint_folder.h"
#include "lockstep/train/pieces_to_write.h"

/// Internal: copies of what is saved, so that the training can go on while they are written.
namespace lockstep::detail {

/// Returns the offset of each piece in a memory that holds them one after the other, and at the end its size.
LOCKSTEP_API std::vector<int64_t> piece_offsets(const std::vector<HeldPiece>& pieces);

/// Copies each piece to `base` and its offset: those of the host by several threads, those of other devices by their
/// own copies. Returns when all are copied.
LOCKSTEP_API void copy_pieces(const std::vector<HeldPiece>& pieces, const std::vector<int64_t>& offsets, char* base);

/// Memory that takes the pieces of one save after the other. It grows, is mapped with large pages, and is page-locked
/// where a piece is on a GPU.
class LOCKSTEP_API Staging {
 public:
  Staging() = default;
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  /// Copies all pieces; what is returned points to this memory and is valid until the next call.
  std::vector<SavedPiece> copy(std::vector<HeldPiece> pieces);

 private:
  char* memory(int64_t num_bytes, bool page_locked);

  char* mapped_ = nullptr;
  int64_t mapped_bytes_ = 0;
  at::Tensor page_locked_;
};

}  // namespace lockstep::detail
