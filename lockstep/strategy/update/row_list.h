#pragma once

#include <cstdint>
#include <span>
#include <vector>

/// Inside: which rows of a table the gradients of a step touch, and who updates them (see row_update.h).
namespace lockstep::detail {

/// Rows of a table that one sparse gradient speaks of, row after row; a row may come again.
struct GradientRows {
  const int64_t* rows = nullptr;
  int64_t count = 0;
  /// Values of the first of them, and the distance to the next ones in bytes.
  const char* values = nullptr;
  int64_t stride = 0;
};

/// What a gradient says of one row.
struct RowEntry {
  int64_t row = 0;
  const char* values = nullptr;
};

/// An entry's place among those of the same row.
class RowTurn {
 public:
  /// The only one.
  RowTurn() = default;
  /// One of several; `repeated` counts rows that have several.
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

/// How entries are ordered; those of one row stay in the order in which gradients have them.
enum class RowOrder {
  /// As gradients have them: values are read from front to back. Best where few rows are looked for.
  kArrival,
  /// By rows: pages of tables, of which each entry may need several, are found faster.
  kRows,
};

/// The rows of one hand: hand h of H has blocks h, h + H, h + 2 H, ... of 64 rows, so that rows which often come, those
/// of low numbers as a rule, are spread over hands.
class RowList {
 public:
  /// Takes this hand's entries. A row that the table has not is an error, whosever it is. Addresses must be good for as
  /// long as the list is used.
  void load(std::span<const GradientRows> gradients, int64_t num_rows, int hand, int num_hands, RowOrder order);

  int64_t size() const { return static_cast<int64_t>(size_); }
  const RowEntry* entries() const { return entries_.data(); }
  const RowTurn* turns() const { return turns_.data(); }
  /// Number of rows, and of those among them that come more than once.
  int64_t num_rows() const { return num_rows_; }
  int64_t num_repeated() const { return num_repeated_; }

 private:
  /// Takes rows [begin, end) of a gradient; returns the largest of them, whosever they are.
  uint64_t append(const GradientRows& gradient, int64_t begin, int64_t end, uint32_t hand, uint32_t num_hands);
  /// Make keys of all entries, or of those whose row may come more than once.
  void take_all();
  void take_candidates();
  void sort_keys();
  /// Puts entries into the order of the keys, which are of all.
  void order_by_keys();
  void find_turns();
  void mark_turns(std::span<const uint64_t> keys);

  // What grew for one step is kept for the next ones.
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
