#include "lockstep/strategy/optimizer/update/rows/row_list.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::detail {
namespace {

constexpr int kBlockBits = 6;
/// A key has the row in its high bits and the index of the entry in its low bits.
constexpr int kEntryBits = 64 - 38;
constexpr uint32_t kEntryMask = (1U << kEntryBits) - 1;
constexpr size_t kMarksPerEntry = 4;
constexpr uint64_t kGoldenRatio = 0x9E3779B97F4A7C15;
/// From this size on radix sort is faster.
constexpr size_t kSmallSort = 768;
constexpr int kMaxDigitBits = 12;
/// Rows that are added between two checks of the capacity.
constexpr int64_t kRowsPerTask = 4096;

/// Remainders by a run-time divisor with two products in place of a division (Lemire, Kaser and Kurz, 2019).
class Remainder {
 public:
  explicit Remainder(uint32_t divisor)
      : divisor_(divisor), reciprocal_(std::numeric_limits<uint64_t>::max() / divisor + 1) {}
  uint32_t operator()(uint32_t value) const {
    __extension__ using Wide = unsigned __int128;
    return static_cast<uint32_t>(static_cast<Wide>(reciprocal_ * value) * divisor_ >> 64);
  }

 private:
  uint64_t divisor_;
  uint64_t reciprocal_;
};

uint32_t block_of(int64_t row) { return static_cast<uint32_t>(static_cast<uint64_t>(row) >> kBlockBits); }

int bits_for(uint64_t count) { return count <= 1 ? 0 : std::bit_width(count - 1); }

void check_rows(std::span<const int64_t> rows, int64_t num_rows) {
  for (const int64_t row : rows) {
    LOCKSTEP_CHECK_INDEX(row >= 0 && row < num_rows,
                         "[optimizer] row ids of a sparse gradient must be in the range of its table: row=", row,
                         ", rows=", num_rows);
  }
}

}  // namespace

void RowList::load(std::span<const GradientRows> gradients, int64_t num_rows, int slot, int num_slots, RowOrder order) {
  LOCKSTEP_CHECK_VALUE(block_of(num_rows) == num_rows >> kBlockBits,
                       "[optimizer] a table must have less than 2^38 rows: rows=", num_rows,
                       "; divide it into several tables");
  size_ = 0;
  row_bits_ = bits_for(static_cast<uint64_t>(num_rows));
  for (const GradientRows& gradient : gradients) {
    for (int64_t begin = 0; begin < gradient.count; begin += kRowsPerTask) {
      const int64_t end = std::min(begin + kRowsPerTask, gradient.count);
      const uint64_t largest =
          append(gradient, begin, end, static_cast<uint32_t>(slot), static_cast<uint32_t>(num_slots));
      if (largest < static_cast<uint64_t>(num_rows)) continue;
      check_rows({gradient.rows + begin, gradient.rows + end}, num_rows);
    }
  }
  LOCKSTEP_CHECK_VALUE(size_ <= uint64_t{1} << kEntryBits, "[optimizer] too many rows in one step: rows=", size_,
                       "; use smaller batches");
  if (order == RowOrder::Rows) {
    take_all();
    sort_keys();
    order_by_keys();
  } else {
    take_candidates();
    sort_keys();
  }
  find_turns();
}

uint64_t RowList::append(const GradientRows& gradient, int64_t begin, int64_t end, uint32_t slot, uint32_t num_slots) {
  const size_t needed = size_ + static_cast<size_t>(end - begin);
  if (entries_.size() < needed) entries_.resize(std::max(needed, 2 * size_));
  const Remainder slot_of(num_slots);
  const auto [rows, count, values, stride] = gradient;
  RowEntry* to = entries_.data() + size_;
  uint64_t largest = 0;
  for (int64_t i = begin; i < end; ++i) {
    const int64_t row = rows[i];
    largest = std::max(largest, static_cast<uint64_t>(row));
    // Without a branch, which could not be predicted: rows of other slots are overwritten by the next entry.
    *to = {row, values + i * stride};
    to += slot_of(block_of(row)) == slot ? 1 : 0;
  }
  size_ = static_cast<size_t>(to - entries_.data());
  return largest;
}

void RowList::take_all() {
  keys_.resize(std::max(keys_.size(), size_));
  for (size_t i = 0; i < size_; ++i) keys_[i] = static_cast<uint64_t>(entries_[i].row) << kEntryBits | i;
  num_keys_ = size_;
}

/// Candidates share a mark (a hash of the row) with another entry. Few rows do so by chance, so most are not sorted.
void RowList::take_candidates() {
  marks_.assign(std::bit_ceil(std::max<size_t>(2, kMarksPerEntry * size_)), 0);
  if (keys_.size() < size_ + 1) keys_.resize(size_ + 1);
  // Local copies: bytes may alias anything, so the compiler would reload the members after every mark.
  uint8_t* const marks = marks_.data();
  uint64_t* const keys = keys_.data();
  const RowEntry* const entries = entries_.data();
  const size_t size = size_;
  const int shift = 64 - std::countr_zero(marks_.size());
  const auto mark_of = [=](size_t entry) { return static_cast<uint64_t>(entries[entry].row) * kGoldenRatio >> shift; };
  for (size_t i = 0; i < size; ++i) {
    uint8_t& mark = marks[mark_of(i)];
    mark = static_cast<uint8_t>(mark << 1 | 1);
  }
  size_t found = 0;
  for (size_t i = 0; i < size; ++i) {
    keys[found] = static_cast<uint64_t>(entries[i].row) << kEntryBits | i;
    found += marks[mark_of(i)] > 1 ? 1 : 0;
  }
  num_keys_ = found;
}

void RowList::sort_keys() {
  if (num_keys_ < kSmallSort) {
    std::sort(keys_.begin(), keys_.begin() + static_cast<std::ptrdiff_t>(num_keys_));
    return;
  }
  if (spare_.size() < keys_.size()) spare_.resize(keys_.size());
  const int passes = (row_bits_ + kMaxDigitBits - 1) / kMaxDigitBits;
  const int digit_bits = passes == 0 ? 0 : (row_bits_ + passes - 1) / passes;
  const uint64_t mask = (uint64_t{1} << digit_bits) - 1;
  for (int pass = 0; pass < passes; ++pass) {
    const int shift = kEntryBits + pass * digit_bits;
    counts_.assign(mask + 1, 0);
    for (size_t i = 0; i < num_keys_; ++i) ++counts_[keys_[i] >> shift & mask];
    uint32_t place = 0;
    for (uint32_t& count : counts_) place += std::exchange(count, place);
    for (size_t i = 0; i < num_keys_; ++i) spare_[counts_[keys_[i] >> shift & mask]++] = keys_[i];
    std::swap(keys_, spare_);
  }
}

void RowList::order_by_keys() {
  spare_entries_.resize(entries_.size());
  for (size_t i = 0; i < size_; ++i) {
    spare_entries_[i] = entries_[keys_[i] & kEntryMask];
    keys_[i] = (keys_[i] & ~uint64_t{kEntryMask}) | i;
  }
  std::swap(entries_, spare_entries_);
}

void RowList::find_turns() {
  turns_.assign(size_, RowTurn{});
  num_rows_ = size();
  num_repeated_ = 0;
  for (size_t begin = 0, end = 0; begin < num_keys_; begin = end) {
    end = begin + 1;
    while (end < num_keys_ && keys_[begin] >> kEntryBits == keys_[end] >> kEntryBits) ++end;
    if (end - begin > 1) mark_turns({keys_.data() + begin, end - begin});
  }
}

/// Marks the entries of a row that occurs several times.
void RowList::mark_turns(std::span<const uint64_t> keys) {
  for (const uint64_t key : keys) {
    turns_[key & kEntryMask] = {static_cast<uint32_t>(num_repeated_), key == keys.front(), key == keys.back()};
  }
  ++num_repeated_;
  num_rows_ -= static_cast<int64_t>(keys.size()) - 1;
}

}  // namespace lockstep::detail
