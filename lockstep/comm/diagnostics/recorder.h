#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <c10/core/ScalarType.h>

#include "lockstep/api.h"
#include "lockstep/base/reduce_op.h"
#include "lockstep/comm/collective_call.h"

namespace lockstep::comm {

/// One collective of one rank, as the recorder stored it.
struct LOCKSTEP_API Record {
  enum class State : uint8_t { Arrived, Done, Failed };

  uint64_t sequence = 0;
  std::string_view operation;
  ReduceOp::Kind reduce_op = ReduceOp::Sum;
  /// dtype and shape of the first tensor; `Undefined` where the call has none.
  at::ScalarType dtype = at::ScalarType::Undefined;
  std::vector<int64_t> shape;
  /// Whether the first tensor has more dimensions than `shape` holds.
  bool shape_cut = false;
  uint32_t num_tensors = 0;
  uint64_t bytes = 0;
  std::chrono::nanoseconds start{};
  /// Zero until the call has ended.
  std::chrono::nanoseconds end{};
  State state = State::Arrived;
  CallSite site{};
  CollectiveOwner owner{};

  /// Returns a description: `all_reduce(SUM, float32[3, 4], 2 tensors)`, with the owner as CollectiveCall has it.
  std::string describe() const;
};

/// Stores the last calls of every rank, always on.
///
/// Each rank writes its own ring without a lock or an allocation; any thread may read at any time and gets whole
/// entries only. Times are of the steady clock.
class LOCKSTEP_API Recorder {
 public:
  /// How many calls of each rank are stored.
  static constexpr size_t kCapacity = 64;

  explicit Recorder(int size);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// Records that `rank` begins `call`. Only the rank's own thread may call this and `end`.
  void begin(int rank, uint64_t sequence, const CollectiveCall& call);
  /// Records how the last call of `rank` ended.
  void end(int rank, Record::State state);

  /// Returns the last call of `rank`; nothing before its first one.
  std::optional<Record> last(int rank) const;
  /// Returns the stored calls of `rank`, oldest first.
  std::vector<Record> entries(int rank) const;
  /// Writes one JSON object a line, rank by rank, oldest first; the first rank is number `first_rank` of `group`.
  void dump(std::ostream& out, std::string_view group = "local", int first_rank = 0) const;

 private:
  struct Entry;
  struct Ring;
  int size_;
  std::unique_ptr<Ring[]> rings_;
};

}  // namespace lockstep::comm
