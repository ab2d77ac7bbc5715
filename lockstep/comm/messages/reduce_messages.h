#pragma once

#include <memory>
#include <new>
#include <span>

#include "lockstep/comm/messages/lane.h"
#include "lockstep/comm/reduce/parcel.h"

namespace lockstep::comm {

/// Memory that a rank keeps for what it sends and receives, from call to call.
class MessageScratch {
 public:
  char* get(int64_t bytes);

 private:
  static constexpr std::align_val_t kAlignment{Parcel::kAlignment};
  struct Free {
    void operator()(char* memory) const { ::operator delete(memory, kAlignment); }
  };
  std::unique_ptr<char, Free> memory_;
  int64_t bytes_ = 0;
};

/// One rank's share of a reduction over all ranks of all workers, of parcels on the CPU.
///
/// `parcels` are those of the worker's own ranks. The result is in the outputs of the call's root, or of all ranks
/// where it has none, when all ranks of all workers have returned.
///
/// The bits are those of a reduction in one process: values are added in the tree over all ranks. Where a worker's
/// ranks are a whole branch of that tree (their number is a power of two), their sum travels in place of their values.
void reduce_by_messages(Lane& lane, const Call& call, std::span<const Parcel* const> parcels, MessageScratch& scratch);

}  // namespace lockstep::comm
