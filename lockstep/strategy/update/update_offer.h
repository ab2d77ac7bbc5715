#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace lockstep::comm {
class SharedMemory;
class SharedArena;
}  // namespace lockstep::comm

/// Inside: what a replica shows the others for one update. Addresses, not tensors, so that replicas of other processes
/// can be shown it too.
namespace lockstep::detail {

/// What the gradients of one parameter are: there is none, it is dense, or it is sparse.
enum Presence : uint8_t { kAbsent, kDense, kSparse };

struct UpdateOffer {
  struct Parameter {
    char* data = nullptr;
    /// Contiguous; null where it is absent or sparse.
    const char* gradient = nullptr;
    Presence presence = kAbsent;
  };

  std::vector<Parameter> parameters;
  /// Buffers that are averaged where gradients are.
  std::vector<char*> buffers;
  /// Whether the gradients are the sums over all replicas already.
  bool reduced = false;
  /// The replica's own gradients, contiguous or sparse, undefined where absent; empty in offers of other processes.
  std::vector<at::Tensor> gradients;

  /// How many bytes it takes to tell other processes of it.
  size_t notice_bytes() const;
  /// Writes it for other processes; all that it points at is in the arena.
  void write_notice(char* to, const comm::SharedArena& arena) const;
  /// Reads the offer of a replica of `worker` that has as many parameters and buffers as this one.
  UpdateOffer read_notice(const char* from, const comm::SharedMemory& memory, int worker) const;
};

/// Moves the values of a tensor into the arena, where other processes see them, unless they are there.
void move_to_arena(const comm::SharedArena& arena, const at::Tensor& tensor);

}  // namespace lockstep::detail
