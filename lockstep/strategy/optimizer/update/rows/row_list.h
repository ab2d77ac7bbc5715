#pragma once

#include <cstdint>
#include <span>
#include <vector>

/// Internal: which rows of a table the gradients of a step touch, and which thread updates them (see row_update.h).
namespace lockstep::detail {

/// The rows of a table in one sparse gradient. A row may occur several times.
struct GradientRows {
  const int64_t* rows = nullptr;
  int64_t count = 0;
  /// Values of the first row, and the distance between rows in bytes.
  const char* values = nullptr;
  int64_t stride = 0;
};

/// The values of a gradient for one row.
struct RowEntry {
  int64_t row = 0;
  const char* values = nullptr;
};

/// The position of an entry among those of the same row.
class RowTurn {
 public:
  /// The only one.
  RowTurn() = default;
  /// One of several; `repeated` is the index of its row among repeated rows.
  RowTurn(uint32_t repeated, bool first, bool last)
      : bits_(repeated << 2 | (first ? kFirst : 0U) | (last ? kLast : 0U)) {}

  bool only() const { return bits_ == kOnly; }
  bool first() const { return (bits_ & kFirst) != 0; }
  bool last() const { return (bits_ & kLast) != 0; }
  int64_t repeated() const { return bits_ >> 2; }

 private:
  static constexpr uint32_t kFirst = 1;
  static constexpr uint32_t kLast = 2;
  static constexpr uint32_t kOnly = ~0U;

  uint32_t bits_ = kOnly;
};

/// How entries are ordered. Those of one row stay in the order of the gradients.
enum class RowOrder {
  /// As in the gradients: values are read from front to back. Best where an update reads few tables.
  Arrival,
  /// By rows: fewer TLB misses where an update reads several tables.
  Rows,
};

/// The rows of one worker slot: slot s of S has blocks s, s + S, s + 2 S, ... of 64 rows, so that frequent rows, which
/// as a rule have low numbers, are distributed over slots.
class RowList {
 public:
  /// Loads the entries of this slot. Row ids out of range are an error, also those of other slots. The gradients must
  /// outlive the use of the list.
  void load(std::span<const GradientRows> gradients, int64_t num_rows, int slot, int num_slots, RowOrder order);

  int64_t size() const { return static_cast<int64_t>(size_); }
  const RowEntry* entries() const { return entries_.data(); }
  const RowTurn* turns() const { return turns_.data(); }
  /// Number of rows, and of those that occur more than once.
  int64_t num_rows() const { return num_rows_; }
  int64_t num_repeated() const { return num_repeated_; }

 private:
  /// Adds rows [begin, end) of a gradient that belong to this slot; returns the largest row of all slots.
  uint64_t append(const GradientRows& gradient, int64_t begin, int64_t end, uint32_t slot, uint32_t num_slots);
  /// Makes keys of all entries, or of those whose row may occur more than once.
  void take_all();
  void take_candidates();
  void sort_keys();
  /// Orders entries by the keys, one for each entry.
  void order_by_keys();
  void find_turns();
  void mark_turns(std::span<const uint64_t> keys);

  // Memory is reused from step to step.
  std::vector<RowEntry> entries_;
  std::vector<RowEntry> spare_entries_;
  std::vector<RowTurn> turns_;
  std::vector<uint8_t> marks_;
  std::vector<uint64_t> keys_;
  std::vector<uint64_t> spare_;
  std::vector<uint32_t> counts_;
  size_t size_ = 0;
  size_t num_keys_ = 0;
  int row_bits_ = 0;
  int64_t num_rows_ = 0;
  int64_t num_repeated_ = 0;
};

}  // namespace lockstep::detail
