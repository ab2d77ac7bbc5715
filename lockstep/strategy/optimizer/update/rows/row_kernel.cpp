#include "lockstep/strategy/optimizer/update/rows/row_kernel.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "lockstep/base/dtype_name.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/reduce/narrow_float.h"

namespace lockstep::detail {
namespace {

constexpr int64_t kCacheLine = 64;
/// How many entries ahead rows are prefetched.
constexpr int64_t kRowsAhead = 16;
/// Number of entries after which updated rows are copied, while they are in the cache.
constexpr int64_t kRowsPerPass = 256;

/// Prefetches a row that is read and written soon.
inline void prefetch_row(const char* address, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += kCacheLine) __builtin_prefetch(address + i, 1);
}

template <class Number>
class Kernel final : public RowKernel {
  using T = typename Number::Stored;
  using C = typename Number::Computed;
  using Bits = std::conditional_t<sizeof(C) == 8, uint64_t, uint32_t>;

 public:
  at::ScalarType block_dtype() const override { return sizeof(C) == 8 ? at::kDouble : at::kFloat; }

  void add_sums(const RowList& list, const RowColumns& columns, double factor, void* sums,
                std::span<char* const> tables) const override {
    for (int64_t begin = 0; begin < list.size(); begin += kRowsPerPass) {
      const int64_t end = std::min(begin + kRowsPerPass, list.size());
      add_entries(list, begin, end, columns, static_cast<C>(factor), static_cast<C*>(sums), tables[0]);
      for (char* const copy : tables.subspan(1)) copy_rows(list, begin, end, columns, tables[0], copy);
    }
  }

  int64_t sum(const RowList& list, const RowColumns& columns, int64_t entry, void* sums, std::span<int64_t>& rows,
              void* block) const override {
    const int64_t width = columns.width;
    C* to = static_cast<C*>(block);
    size_t found = 0;
    for (; entry < list.size() && found < rows.size(); ++entry) {
      const RowTurn turn = list.turns()[entry];
      const T* const values = values_of(list, columns, entry);
      prefetch_row(list.entries()[std::min(entry + kRowsAhead, list.size() - 1)].values + bytes<T>(columns.begin),
                   bytes<T>(width));
      if (turn.only()) {
        add_to(to, turn, values, width);
      } else {
        C* const sum = static_cast<C*>(sums) + turn.repeated() * width;
        add_to(sum, turn, values, width);
        if (!turn.last()) continue;
        std::copy_n(sum, width, to);
      }
      rows[found++] = list.entries()[entry].row;
      to += width;
    }
    rows = rows.first(found);
    return entry;
  }

  void gather(std::span<const int64_t> rows, const RowColumns& columns, const char* table, void* block) const override {
    C* to = static_cast<C*>(block);
    for (size_t i = 0; i < rows.size(); ++i, to += columns.width) {
      prefetch_row(table + place<T>(columns, later(rows, i)), bytes<T>(columns.width));
      const T* const row = reinterpret_cast<const T*>(table + place<T>(columns, rows[i]));
#pragma GCC ivdep
      for (int64_t k = 0; k < columns.width; ++k) to[k] = Number::load(row[k]);
    }
  }

  void scatter(std::span<const int64_t> rows, const RowColumns& columns, const void* block,
               std::span<char* const> tables) const override {
    const C* from = static_cast<const C*>(block);
    for (const int64_t number : rows) {
      const int64_t offset = place<T>(columns, number);
      T* const row = reinterpret_cast<T*>(tables[0] + offset);
#pragma GCC ivdep
      for (int64_t k = 0; k < columns.width; ++k) row[k] = Number::store(from[k]);
      for (char* const table : tables.subspan(1)) std::memcpy(table + offset, row, bytes<T>(columns.width));
      from += columns.width;
    }
  }

  void gather_state(std::span<const int64_t> rows, const RowColumns& columns, const char* table, double untouched,
                    void* block) const override {
    C* to = static_cast<C*>(block);
    for (size_t i = 0; i < rows.size(); ++i, to += columns.width) {
      prefetch_row(table + place<C>(columns, later(rows, i)), bytes<C>(columns.width));
      flip(reinterpret_cast<const C*>(table + place<C>(columns, rows[i])), untouched, columns.width, to);
    }
  }

  void scatter_state(std::span<const int64_t> rows, const RowColumns& columns, const void* block, double untouched,
                     char* table) const override {
    const C* from = static_cast<const C*>(block);
    for (const int64_t row : rows) {
      flip(from, untouched, columns.width, reinterpret_cast<C*>(table + place<C>(columns, row)));
      from += columns.width;
    }
  }

 private:
  template <class E>
  static int64_t bytes(int64_t elements) {
    return elements * static_cast<int64_t>(sizeof(E));
  }

  /// Where the columns of a row begin in a table, in bytes.
  template <class E>
  static int64_t place(const RowColumns& columns, int64_t row) {
    return bytes<E>(row * columns.in_row + columns.begin);
  }

  static int64_t later(std::span<const int64_t> rows, size_t i) {
    return rows[std::min(i + static_cast<size_t>(kRowsAhead), rows.size() - 1)];
  }

  static const T* values_of(const RowList& list, const RowColumns& columns, int64_t entry) {
    return reinterpret_cast<const T*>(list.entries()[entry].values) + columns.begin;
  }

  static T added(T before, C by, C value) { return Number::store(Number::load(before) + by * value); }

  /// Updates rows for entries [begin, end).
  ///
  /// Most of the time goes into TLB misses for rows. The processor resolves those of the next rows while it computes if
  /// they are few instructions ahead: hence the plain loop.
  static void add_entries(const RowList& list, int64_t begin, int64_t end, const RowColumns& columns, C by, C* sums,
                          char* table) {
    const int64_t first_byte = bytes<T>(columns.begin);
    const int64_t stride = bytes<T>(columns.in_row);
    const int64_t width = columns.width;
    const int64_t last = list.size() - 1;
    const RowEntry* const entries = list.entries();
    const RowTurn* const turns = list.turns();
    for (int64_t i = begin; i < end; ++i) {
      prefetch_row(table + first_byte + entries[std::min(i + kRowsAhead, last)].row * stride, bytes<T>(width));
      T* const row = reinterpret_cast<T*>(table + first_byte + entries[i].row * stride);
      const T* const values = reinterpret_cast<const T*>(entries[i].values + first_byte);
      if (turns[i].only()) {
#pragma GCC unroll 4
#pragma GCC ivdep
        for (int64_t k = 0; k < width; ++k) row[k] = added(row[k], by, Number::load(values[k]));
      } else {
        add_repeated(turns[i], values, width, by, sums + turns[i].repeated() * width, row);
      }
    }
  }

  [[gnu::noinline]] static void add_repeated(RowTurn turn, const T* values, int64_t width, C by, C* sum, T* row) {
    add_to(sum, turn, values, width);
    if (!turn.last()) return;
#pragma GCC ivdep
    for (int64_t k = 0; k < width; ++k) row[k] = added(row[k], by, sum[k]);
  }

  /// Copies the rows that entries [begin, end) have updated.
  static void copy_rows(const RowList& list, int64_t begin, int64_t end, const RowColumns& columns, const char* table,
                        char* copy) {
    for (int64_t i = begin; i < end; ++i) {
      prefetch_row(copy + place<T>(columns, list.entries()[std::min(i + kRowsAhead, list.size() - 1)].row),
                   bytes<T>(columns.width));
      const int64_t offset = place<T>(columns, list.entries()[i].row);
      if (list.turns()[i].last()) std::memcpy(copy + offset, table + offset, bytes<T>(columns.width));
    }
  }

  static void add_to(C* sum, RowTurn turn, const T* values, int64_t width) {
    if (turn.first()) {
#pragma GCC ivdep
      for (int64_t k = 0; k < width; ++k) sum[k] = Number::load(values[k]);
    } else {
#pragma GCC ivdep
      for (int64_t k = 0; k < width; ++k) sum[k] += Number::load(values[k]);
    }
  }

  static void flip(const C* from, double untouched, int64_t width, C* to) {
    const auto bits = std::bit_cast<Bits>(static_cast<C>(untouched));
#pragma GCC ivdep
    for (int64_t k = 0; k < width; ++k) to[k] = std::bit_cast<C>(std::bit_cast<Bits>(from[k]) ^ bits);
  }
};

template <class Number>
const RowKernel& kernel() {
  static const Kernel<Number> instance;
  return instance;
}

}  // namespace

const RowKernel& row_kernel(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return kernel<comm::Plain<float>>();
    case at::kDouble:
      return kernel<comm::Plain<double>>();
    case at::kHalf:
      return kernel<comm::Half>();
    case at::kBFloat16:
      return kernel<comm::BFloat16>();
    default:
      LOCKSTEP_CHECK_TYPE(false,
                          "[optimizer] rows of a table must be floating point numbers: dtype=", dtype_name(dtype));
  }
}

}  // namespace lockstep::detail
