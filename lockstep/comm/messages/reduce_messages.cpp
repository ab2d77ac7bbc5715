#include "lockstep/comm/messages/reduce_messages.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/div.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/view_as_real.h>
#include <c10/util/SmallVector.h>

#include "lockstep/comm/exchange_group.h"
#include "lockstep/comm/reduce/narrow_float.h"
#include "lockstep/comm/reduce/reduce_kernel.h"

namespace lockstep::comm {
namespace {

/// A range of bytes of one piece.
struct Range {
  size_t piece = 0;
  int64_t from = 0;
  int64_t bytes = 0;
};
using Ranges = c10::SmallVector<Range, 4>;

Ranges ranges_between(const FlatTensors& flat, int64_t begin, int64_t end) {
  Ranges ranges;
  const auto pieces = flat.pieces();
  for (size_t i = 0; i < pieces.size(); ++i) {
    const auto width = static_cast<int64_t>(c10::elementSize(pieces[i].dtype));
    const int64_t from = std::max(begin - pieces[i].offset, int64_t{0});
    const int64_t to = std::min(end - pieces[i].offset, pieces[i].count * width);
    if (from < to) ranges.push_back({i, from, to - from});
  }
  return ranges;
}

bool is_narrow(at::ScalarType dtype) {
  return dtype == at::kHalf || dtype == at::kBFloat16 || dtype == at::kComplexHalf;
}

/// So many numbers are widened at a time.
constexpr int64_t kBlock = 2048;

/// Divides as the kernels do: a quotient, and complex numbers part by part.
void divide(char* data, int64_t bytes, at::ScalarType dtype, int divisor) {
  const at::NoGradGuard no_grad;
  at::Tensor values = at::from_blob(data, {bytes / static_cast<int64_t>(c10::elementSize(dtype))}, dtype);
  if (values.is_complex()) values = at::view_as_real(values);
  values.div_(at::full({}, divisor, values.options()));
}

void widen_numbers(at::ScalarType dtype, const uint16_t* from, float* to, int64_t count) {
  const bool is_brain = dtype == at::kBFloat16;
  for (int64_t i = 0; i < count; ++i) to[i] = is_brain ? bfloat16_to_float(from[i]) : half_to_float(from[i]);
}

void narrow_numbers(at::ScalarType dtype, const float* from, uint16_t* to, int64_t count) {
  const bool is_brain = dtype == at::kBFloat16;
  for (int64_t i = 0; i < count; ++i) to[i] = is_brain ? float_to_bfloat16(from[i]) : float_to_half(from[i]);
}

/// Bytes of a narrow number; complex ones are two of them.
constexpr int64_t kNarrowBytes = 2;

/// Combines narrow numbers in the order of the kernels, and leaves the result in floats.
void sum_widened(at::ScalarType dtype, ReduceOp op, std::span<const void* const> inputs, float* sums, int64_t count) {
  std::vector<float> wide(inputs.size() * kBlock);
  std::vector<const void*> blocks;
  for (size_t i = 0; i < inputs.size(); ++i) blocks.push_back(wide.data() + i * kBlock);
  const ReduceKernel kernel = reduce_kernel(at::kFloat, op, inputs.size());
  for (int64_t at = 0; at < count; at += kBlock) {
    const int64_t length = std::min(kBlock, count - at);
    for (size_t i = 0; i < inputs.size(); ++i) {
      widen_numbers(dtype, static_cast<const uint16_t*>(inputs[i]) + at, wide.data() + i * kBlock, length);
    }
    void* const target = sums + at;
    kernel(blocks, {&target, 1}, length);
  }
}

/// Combines such sums, divides, and rounds once.
void sum_and_round(at::ScalarType dtype, ReduceOp op, std::span<const void* const> sums, float divisor,
                   std::span<void* const> targets, int64_t count) {
  std::vector<float> wide(kBlock);
  void* const block = wide.data();
  std::vector<const void*> inputs(sums.size());
  const ReduceKernel kernel = reduce_kernel(at::kFloat, op, sums.size());
  for (int64_t at = 0; at < count; at += kBlock) {
    const int64_t length = std::min(kBlock, count - at);
    for (size_t i = 0; i < sums.size(); ++i) inputs[i] = static_cast<const float*>(sums[i]) + at;
    kernel(inputs, {&block, 1}, length);
    for (int64_t i = 0; i < length; ++i) wide[static_cast<size_t>(i)] /= divisor;
    for (void* target : targets) narrow_numbers(dtype, wide.data(), static_cast<uint16_t*>(target) + at, length);
  }
}

class Reduction {
 public:
  Reduction(PeerExchange& peers, const CollectiveCall& call, std::span<const FlatTensors* const> flats,
            MessageScratch& scratch)
      : peers_(peers), team_(peers.team()), call_(call), flats_(flats), scratch_(scratch) {
    ranges_.resize(static_cast<size_t>(team_.num_workers()));
    for (int worker = 0; worker < team_.num_workers(); ++worker) {
      const int part = team_.rank_of(worker, peers.local());
      const int64_t bytes = flats[0]->bytes();
      ranges_[static_cast<size_t>(worker)] = ranges_between(*flats[0], part_begin(bytes, part, team_.num_ranks()),
                                                            part_begin(bytes, part + 1, team_.num_ranks()));
    }
    // Sums of narrow numbers are sent as floats, before they are rounded; two narrow numbers take as much.
    sends_sums_ = std::has_single_bit(flats.size());
    for (const auto& piece : flats[0]->pieces()) {
      sends_sums_ = sends_sums_ && (!is_narrow(piece.dtype) || flats.size() > 2);
    }
  }

  void run() {
    lay_out_scratch();
    exchange_values();
    reduce_own_part();
    exchange_sums();
  }

 private:
  const Ranges& own_ranges() const { return ranges_[static_cast<size_t>(team_.worker())]; }
  bool alone() const { return flats_.size() == 1; }
  /// How many values of each element a worker sends: one sum, or those of all its ranks.
  int64_t values_each() const { return sends_sums_ ? 1 : static_cast<int64_t>(flats_.size()); }

  at::ScalarType dtype_of(const Range& range) const { return flats_[0]->pieces()[range.piece].dtype; }
  /// Whether the sum of a range is sent as floats of twice its width.
  bool widens(const Range& range) const { return sends_sums_ && is_narrow(dtype_of(range)); }
  int64_t sent_bytes(const Range& range) const { return widens(range) ? 2 * range.bytes : range.bytes; }

  /// The bytes that a range takes in the staging buffer, where every range begins on a cache line.
  int64_t room(const Range& range) const {
    return (sent_bytes(range) + FlatTensors::kAlignment - 1) / FlatTensors::kAlignment * FlatTensors::kAlignment;
  }
  int64_t room(const Ranges& ranges) const {
    int64_t bytes = 0;
    for (const Range& range : ranges) bytes += room(range);
    return bytes;
  }

  /// The staging buffer holds: what each peer sends of this rank's part; this rank's part of the result, where no local
  /// rank gets it; this worker's sums of every part, unless it has one rank only.
  void lay_out_scratch() {
    const int64_t own_bytes = room(own_ranges());
    int64_t needed = own_bytes * values_each() * team_.num_workers() + own_bytes;
    if (sends_sums_ && !alone()) {
      for (const Ranges& ranges : ranges_) needed += room(ranges);
    }
    char* next = scratch_.get(needed);
    for (int worker = 0; worker < team_.num_workers(); ++worker) {
      received_.push_back(next);
      next += own_bytes * values_each();
    }
    result_ = next;
    sums_ = next + own_bytes;
  }

  /// Computes the sum over the local ranks of a range in the staging buffer; returns the values of the rank where there
  /// is one.
  const char* local_sum(const Range& range) {
    if (alone()) return flats_[0]->pieces()[range.piece].input + range.from;
    const auto dtype = dtype_of(range);
    c10::SmallVector<const void*, 16> inputs;
    for (const FlatTensors* flat : flats_) inputs.push_back(flat->pieces()[range.piece].input + range.from);
    char* const sum = sums_;
    sums_ += room(range);
    void* const target = sum;
    const ReduceOp op = call_.reduce_op == ReduceOp::Mean ? ReduceOp::Sum : call_.reduce_op;
    if (widens(range)) {
      sum_widened(dtype, op, inputs, reinterpret_cast<float*>(sum), range.bytes / kNarrowBytes);
      return sum;
    }
    reduce_kernel(dtype, op, inputs.size())({inputs.data(), inputs.size()}, {&target, 1},
                                            range.bytes / static_cast<int64_t>(c10::elementSize(dtype)));
    return sum;
  }

  void exchange_values() {
    std::vector<Outgoing> outgoing;
    std::vector<Incoming> incoming;
    for (int worker = 0; worker < team_.num_workers(); ++worker) {
      if (worker == team_.worker()) continue;
      for (const Range& range : ranges_[static_cast<size_t>(worker)]) {
        const auto bytes = static_cast<size_t>(sent_bytes(range));
        if (sends_sums_) {
          outgoing.push_back({worker, local_sum(range), bytes});
          continue;
        }
        for (const FlatTensors* flat : flats_) {
          outgoing.push_back({worker, flat->pieces()[range.piece].input + range.from, bytes});
        }
      }
      char* to = received_[static_cast<size_t>(worker)];
      for (const Range& range : own_ranges()) {
        for (int64_t v = 0; v < values_each(); ++v, to += room(range)) {
          incoming.push_back({worker, to, static_cast<size_t>(sent_bytes(range))});
        }
      }
    }
    peers_.exchange(outgoing, incoming);
  }

  /// Returns where this rank's part of the result goes: to the local ranks that get it, or into the staging buffer.
  c10::SmallVector<void*, 16> targets_of(const Range& range, int64_t position) {
    c10::SmallVector<void*, 16> targets;
    for (size_t local = 0; local < flats_.size(); ++local) {
      if (gets_result(team_.rank_of(team_.worker(), static_cast<int>(local)))) {
        targets.push_back(flats_[local]->pieces()[range.piece].output + range.from);
      }
    }
    if (targets.empty()) targets.push_back(result_ + position);
    return targets;
  }

  bool gets_result(int rank) const { return call_.root < 0 || call_.root == rank; }
  bool has_receiver(int worker) const { return call_.root < 0 || call_.root / team_.ranks_per_worker == worker; }

  void reduce_own_part() {
    int64_t position = 0;
    for (const Range& range : own_ranges()) {
      const auto dtype = dtype_of(range);
      c10::SmallVector<const void*, 16> inputs;
      for (int worker = 0; worker < team_.num_workers(); ++worker) add_inputs(inputs, worker, range, position);
      const auto targets = targets_of(range, position);
      const bool divides = call_.reduce_op == ReduceOp::Mean && static_cast<int>(inputs.size()) != team_.num_ranks();
      const ReduceOp op = divides ? ReduceOp(ReduceOp::Sum) : ReduceOp(call_.reduce_op);
      if (widens(range)) {
        const float divisor = divides ? static_cast<float>(team_.num_ranks()) : 1;
        sum_and_round(dtype, op, inputs, divisor, {targets.data(), targets.size()}, range.bytes / kNarrowBytes);
      } else {
        reduce_kernel(dtype, op, inputs.size())({inputs.data(), inputs.size()}, {targets.data(), targets.size()},
                                                range.bytes / static_cast<int64_t>(c10::elementSize(dtype)));
      }
      if (divides && !widens(range)) {
        for (void* target : targets) divide(static_cast<char*>(target), range.bytes, dtype, team_.num_ranks());
      }
      own_result_.push_back(static_cast<const char*>(targets[0]));
      position += room(range);
    }
  }

  void add_inputs(c10::SmallVector<const void*, 16>& inputs, int worker, const Range& range, int64_t position) {
    if (worker != team_.worker()) {
      const char* from = received_[static_cast<size_t>(worker)] + position * values_each();
      for (int64_t v = 0; v < values_each(); ++v) inputs.push_back(from + v * room(range));
    } else if (sends_sums_) {
      inputs.push_back(local_sum(range));
    } else {
      for (const FlatTensors* flat : flats_) inputs.push_back(flat->pieces()[range.piece].input + range.from);
    }
  }

  void exchange_sums() {
    std::vector<Outgoing> outgoing;
    std::vector<Incoming> incoming;
    const bool receives = has_receiver(team_.worker());
    const FlatTensors* const first = receives ? first_receiver() : nullptr;
    for (int worker = 0; worker < team_.num_workers(); ++worker) {
      if (worker == team_.worker()) continue;
      if (has_receiver(worker)) {
        for (size_t i = 0; i < own_ranges().size(); ++i) {
          outgoing.push_back({worker, own_result_[i], static_cast<size_t>(own_ranges()[i].bytes)});
        }
      }
      if (!receives) continue;
      for (const Range& range : ranges_[static_cast<size_t>(worker)]) {
        incoming.push_back(
            {worker, first->pieces()[range.piece].output + range.from, static_cast<size_t>(range.bytes)});
      }
    }
    peers_.exchange(outgoing, incoming);
    if (receives && call_.root < 0) copy_to_other_ranks(*first);
  }

  const FlatTensors* first_receiver() const {
    return call_.root < 0 ? flats_[static_cast<size_t>(peers_.local())]
                          : flats_[static_cast<size_t>(call_.root % team_.ranks_per_worker)];
  }

  void copy_to_other_ranks(const FlatTensors& from) {
    for (const FlatTensors* to : flats_) {
      if (to == &from) continue;
      for (int worker = 0; worker < team_.num_workers(); ++worker) {
        if (worker == team_.worker()) continue;
        for (const Range& range : ranges_[static_cast<size_t>(worker)]) {
          std::memcpy(to->pieces()[range.piece].output + range.from, from.pieces()[range.piece].output + range.from,
                      static_cast<size_t>(range.bytes));
        }
      }
    }
  }

  PeerExchange& peers_;
  const MessageTeam& team_;
  const CollectiveCall& call_;
  std::span<const FlatTensors* const> flats_;
  MessageScratch& scratch_;
  /// What the rank of this number reduces in each worker.
  std::vector<Ranges> ranges_;
  bool sends_sums_ = false;
  std::vector<char*> received_;
  char* result_ = nullptr;
  char* sums_ = nullptr;
  std::vector<const char*> own_result_;
};

}  // namespace

char* MessageScratch::get(int64_t bytes) {
  if (bytes_ < bytes) {
    memory_.reset();
    memory_.reset(static_cast<char*>(::operator new(static_cast<size_t>(bytes), kAlignment)));
    bytes_ = bytes;
  }
  return memory_.get();
}

void reduce_by_messages(PeerExchange& peers, const CollectiveCall& call, std::span<const FlatTensors* const> flats,
                        MessageScratch& scratch) {
  Reduction(peers, call, flats, scratch).run();
}

}  // namespace lockstep::comm
