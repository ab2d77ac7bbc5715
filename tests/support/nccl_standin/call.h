#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <cuda_runtime.h>
#include <nccl.h>

namespace nccl_standin {

enum class Kind { AllReduce, Reduce, Broadcast, AllGather, ReduceScatter, Send, Receive };

/// What happens to a call: it is an error, does not end before an abort, or is late.
enum class Fault { None, Error, Hang, Delay };

/// A call of the program.
struct Call {
  Kind kind;
  const char* input;
  char* output;
  /// Elements of each rank.
  size_t count;
  ncclDataType_t dtype;
  ncclRedOp_t op;
  /// The root, or the other rank of a message.
  int peer;
  cudaStream_t stream;
  Fault fault = Fault::None;

  bool is_message() const { return kind == Kind::Send || kind == Kind::Receive; }
  size_t bytes() const;
  /// Equal on all ranks of a collective.
  uint64_t signature() const;
};

/// Faults, from the environment at the time when a communicator is made: the n-th call of a rank (from 1) has one; on
/// rank NCCL_STANDIN_RANK alone, where that is set.
struct Faults {
  Faults();
  /// Marks the next calls of a rank, of which messages of a group are one.
  void mark(std::vector<Call>& calls, int of_rank);
  /// How long a call with that fault is held, at least; less than 0 for no limit.
  std::chrono::nanoseconds time_of(Fault fault) const;
  /// How long the wire takes for these bytes.
  std::chrono::nanoseconds time_on_wire(size_t bytes) const;

  int rank = -1;
  long error_at = 0;
  long hang_at = 0;
  long delay_at = 0;
  std::chrono::milliseconds delay{};
  /// Bytes in a second that calls take at least; 0 for no limit.
  double wire = 0;
  bool refuses_shared_cards = false;

 private:
  long calls_ = 0;
};

/// How the calls of one rank are carried out, once all ranks have joined.
class Carrier {
 public:
  virtual ~Carrier() = default;
  /// Takes the calls of one group, all of one stream.
  virtual ncclResult_t queue(const std::vector<Call>& calls) = 0;
  /// In progress while calls are not in their stream; then what went wrong, if anything did.
  virtual ncclResult_t state() = 0;
  /// Lets all work in streams go on without being done, now and later.
  virtual void abort() = 0;
  /// Whether the GPU has done all work.
  virtual bool is_done() = 0;
  /// Whether only an abort ends it.
  virtual bool needs_abort() = 0;
  /// Whether a graph has its work: it must live as long as the process.
  virtual bool is_captured() const = 0;
};

}  // namespace nccl_standin
