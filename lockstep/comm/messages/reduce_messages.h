#pragma once

#include <memory>
#include <new>
#include <span>

#include "lockstep/comm/messages/peer_exchange.h"
#include "lockstep/comm/reduce/flat_tensors.h"

namespace lockstep::comm {

/// Staging buffer of a rank for messages, reused from call to call.
class MessageScratch {
 public:
  char* get(int64_t bytes);

 private:
  static constexpr std::align_val_t kAlignment{FlatTensors::kAlignment};
  struct Free {
    void operator()(char* memory) const { ::operator delete(memory, kAlignment); }
  };
  std::unique_ptr<char, Free> memory_;
  int64_t bytes_ = 0;
};

/// Computes one rank's part of a reduction over all ranks of all workers, of tensors on the CPU.
///
/// `flats` are those of the worker's own ranks. The result is in the outputs of the call's root, or of all ranks
/// where it has none, when all ranks of all workers have returned.
///
/// The bits are those of a reduction in one process: values are added in the tree over all ranks. Where a worker's
/// ranks are a whole subtree (their number is a power of two), their sum is sent in place of their values. Sums of
/// float16 and bfloat16 are sent as float32 and rounded once, in the result: a worker with r ranks sends 2 bytes for
/// each number and rank if r is 1, 2 or no power of two, otherwise 4 bytes for each number, and the result in 2 bytes.
/// That is never more than for float32.
void reduce_by_messages(PeerExchange& peers, const CollectiveCall& call, std::span<const FlatTensors* const> flats,
                        MessageScratch& scratch);

}  // namespace lockstep::comm
