#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/api.h"

/// State: names and values of everything that a training changes.
namespace lockstep {

namespace detail {
class BlockFile;
}

/// Consecutive elements of a tensor in row-major order: those from `begin` on, as many as `values` has. `values` is
/// contiguous, of the tensor's dtype, on any device; it is the memory itself, not a copy.
struct StatePiece {
  int64_t begin = 0;
  at::Tensor values;
  /// Internal: elements, of 4 or 8 bytes on the CPU, are stored xor these bits.
  uint64_t flipped = 0;

  int64_t end() const { return begin + values.numel(); }
};

/// Elements [begin, end) of a tensor in row-major order that are in a file from byte `offset` on.
struct StoredPiece {
  int64_t begin = 0;
  int64_t end = 0;
  std::shared_ptr<const detail::BlockFile> file;
  int64_t offset = 0;
};

/// A whole tensor, wherever its elements are: in memory of this process, in files, or with other workers. A cheap
/// handle: values are read when somebody asks for them, and are those of that moment.
struct LOCKSTEP_API StateTensor {
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> sizes;
  /// What this process holds, ordered, without overlaps. Checkpoints of several workers consist of the pieces of all.
  std::vector<StatePiece> pieces = {};
  /// What files hold.
  std::vector<StoredPiece> stored = {};
  /// Returns the whole tensor on the CPU; set where other workers hold a part of it. All workers call it together.
  std::function<at::Tensor()> gather = {};
  /// Internal: where the first worker's values count, but every worker has some: those of this worker.
  std::vector<StatePiece> own = {};
  /// Internal: equal in one tensor under several names, which is saved once; null where that is not known.
  std::shared_ptr<const void> identity = {};

  StateTensor() = default;
  /// A tensor that this process holds.
  explicit StateTensor(const at::Tensor& values);

  int64_t numel() const;
  int64_t num_bytes() const;
  /// Returns a copy of the whole tensor on the CPU. Where other workers hold a part, all workers call it together.
  /// DataError where a file is damaged.
  at::Tensor read() const;
};

/// A tree of names with values: tensors, numbers, texts. Names have their parents before them:
/// "adam.first.weight.exp_avg".
///
///     State state = optimizer.state();
///     for (const auto& [name, value] : state) ...
///     at::Tensor mean = state.tensor("first.weight.exp_avg").read();
class LOCKSTEP_API State {
 public:
  using Value = std::variant<bool, int64_t, double, std::string, StateTensor>;
  using Values = std::map<std::string, Value>;

  /// Sets a value. A name that is there already is replaced. ValueError for an empty name.
  void set(const std::string& name, Value value);
  void set(const std::string& name, const at::Tensor& tensor) { set(name, StateTensor(tensor)); }
  void set(const std::string& name, const char* text) { set(name, std::string(text)); }
  void set(const std::string& name, double number) { set(name, Value(number)); }
  template <std::integral T>
    requires(sizeof(T) < sizeof(int64_t) || std::signed_integral<T>)
  void set(const std::string& name, T number) {
    if constexpr (std::same_as<T, bool>) {
      set(name, Value(number));
    } else {
      set(name, Value(int64_t{number}));
    }
  }
  /// Adds all values of another state under `parent`.
  void add(const std::string& parent, const State& child);

  bool has(const std::string& name) const { return values_.contains(name); }
  /// Null where there is none.
  const Value* find(const std::string& name) const;
  /// The value with this name. ValueError where there is none, or where it is of another type; it names what there is.
  const StateTensor& tensor(const std::string& name) const;
  int64_t integer(const std::string& name) const;
  /// Also of an integer.
  double number(const std::string& name) const;
  bool flag(const std::string& name) const;
  const std::string& text(const std::string& name) const;

  /// Returns the values under `parent`, with their names below it.
  State below(const std::string& parent) const;

  size_t size() const { return values_.size(); }
  bool empty() const { return values_.empty(); }
  Values::const_iterator begin() const { return values_.begin(); }
  Values::const_iterator end() const { return values_.end(); }

 private:
  const Value& at(const std::string& name) const;

  Values values_;
};

struct LoadOptions {
  /// Whether a missing, superfluous or unfitting value is an error. Otherwise what fits is loaded.
  bool strict = true;
};

/// What was not loaded.
struct LOCKSTEP_API LoadResult {
  /// Names that the objects have and the state has not.
  std::vector<std::string> missing = {};
  /// Names that the state has and no object.
  std::vector<std::string> unexpected = {};
  /// "first.weight: shape [3, 4] of the state, [3, 5] of the object".
  std::vector<std::string> unfitting = {};

  bool complete() const { return missing.empty() && unexpected.empty() && unfitting.empty(); }
  /// All lists as text.
  std::string str() const;
};

/// A type with state of its own: `state()` returns it, `load_state` takes it over.
template <class T>
concept Stateful = requires(const T& saved, T& loaded, const State& state) {
  { saved.state() } -> std::convertible_to<State>;
  loaded.load_state(state);
};

}  // namespace lockstep
