#pragma once

#include <initializer_list>
#include <optional>
#include <ostream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <c10/util/SmallVector.h>

#include "lockstep/api.h"
#include "lockstep/base/error.h"
#include "lockstep/base/nest.h"
#include "lockstep/value/print.h"
#include "lockstep/value/replica_position.h"

namespace lockstep {

namespace detail {
[[noreturn]] LOCKSTEP_API void fail_outside_replica(const char* type, size_t num_components);
[[noreturn]] LOCKSTEP_API void fail_component_index(const char* type, int64_t index, size_t num_components);

/// False for all types: for `static_assert` in templates that must not be instantiated.
template <class...>
inline constexpr bool kIsOneNumber = false;

/// Base of PerReplica and Mirrored: the components, one for each local replica.
template <class T>
class Components {
 public:
  /// Number of components: the local replicas, or one for a value that all replicas share.
  size_t size() const { return components_.size(); }

  const T& operator[](size_t replica) const { return components_[replica]; }
  T& operator[](size_t replica) { return components_[replica]; }

  auto begin() const { return components_.begin(); }
  auto end() const { return components_.end(); }

 protected:
  Components() = default;
  explicit Components(c10::SmallVector<T, 2> components) : components_(std::move(components)) {}

  const T& checked(int64_t replica, const char* type) const {
    if (replica < 0 || replica >= static_cast<int64_t>(size())) fail_component_index(type, replica, size());
    return components_[replica];
  }

  c10::SmallVector<T, 2> components_;
};
}  // namespace detail

/// One value for each local replica, not necessarily equal: what `run` returns and takes.
///
/// Inside a replica it converts to that replica's value. A value with a single component, because there is only one
/// replica or because every replica returned the same tensor object, is *bare*: it converts everywhere and prints as
/// itself.
///
/// ```
/// PerReplica<torch::Tensor> loss = strategy.run(step, batch);
/// loss[0];                                            // replica 0's
/// torch::Tensor sum = strategy.reduce("sum", loss);
/// ```
template <class T>
class PerReplica : public detail::Components<T> {
 public:
  using value_type = T;

  PerReplica(std::initializer_list<T> components)
      : detail::Components<T>(c10::SmallVector<T, 2>(components.begin(), components.end())) {}
  explicit PerReplica(c10::SmallVector<T, 2> components) : detail::Components<T>(std::move(components)) {}
  explicit PerReplica(const std::vector<T>& components)
      : detail::Components<T>(c10::SmallVector<T, 2>(components.begin(), components.end())) {}

  /// Makes a value that all replicas share.
  static PerReplica bare(T value) {
    c10::SmallVector<T, 2> one;
    one.push_back(std::move(value));
    PerReplica result(std::move(one));
    result.bare_ = true;
    return result;
  }

  bool is_bare() const { return bare_; }

  /// Returns the component of a replica; of a bare value always the value.
  const T& at(int64_t replica) const { return bare_ ? (*this)[0] : this->checked(replica, "PerReplica"); }

  /// Returns the bare value or, inside a replica, that replica's component. A number that all replicas agree on is that
  /// number outside of replicas, too.
  const T& value() const {
    if (bare_) return (*this)[0];
    const ReplicaPosition& here = current_position();
    if (here.kind == PositionKind::Replica || here.kind == PositionKind::Update) return at(here.replica);
    if (!is_one_number()) detail::fail_outside_replica("PerReplica", this->size());
    return (*this)[0];
  }

  operator const T&() const { return value(); }  // NOLINT: inside a replica a PerReplica is its component

  /// Does not compile: a PerReplica is no number. `strategy.reduce("sum", value).item<float>()` is the number of all
  /// replicas, `value[i].item<float>()` and `strategy.local_results(value)` are those of single ones.
  template <class Number = void>
  void item() const {
    static_assert(detail::kIsOneNumber<Number, T>,
                  "a PerReplica has one value for each replica and no item(): call item() on "
                  "strategy.reduce(\"sum\", value), on value[i], or on each of strategy.local_results(value)");
  }

 private:
  bool is_one_number() const {
    if constexpr (std::is_arithmetic_v<T>) {
      for (const T& component : *this) {
        if (component != (*this)[0]) return false;
      }
      return this->size() > 0;
    }
    return false;
  }

  bool bare_ = false;
};

/// One value for each local replica, equal on all of them. Converts to its component everywhere; a single copy, the
/// result of a reduction to one device, is the component of every replica.
template <class T>
class Mirrored : public detail::Components<T> {
 public:
  using value_type = T;

  Mirrored(std::initializer_list<T> components)
      : detail::Components<T>(c10::SmallVector<T, 2>(components.begin(), components.end())) {}
  explicit Mirrored(c10::SmallVector<T, 2> components) : detail::Components<T>(std::move(components)) {}
  explicit Mirrored(const std::vector<T>& components)
      : detail::Components<T>(c10::SmallVector<T, 2>(components.begin(), components.end())) {}

  const T& at(int64_t replica) const { return this->size() == 1 ? (*this)[0] : this->checked(replica, "Mirrored"); }

  /// Returns the component of this replica, or the first one outside of replicas.
  const T& value() const {
    const ReplicaPosition& here = current_position();
    return at(here.replica < 0 ? 0 : here.replica);
  }

  operator const T&() const { return value(); }  // NOLINT: a Mirrored is its component
};

template <class T>
struct nest::Visit<PerReplica<T>> {
  static constexpr bool kIsLeaf = true;
};
template <class T>
struct nest::Visit<Mirrored<T>> {
  static constexpr bool kIsLeaf = true;
};

template <class T>
inline constexpr bool kIsPerReplica = false;
template <class T>
inline constexpr bool kIsPerReplica<PerReplica<T>> = true;
template <class T>
inline constexpr bool kIsMirrored = false;
template <class T>
inline constexpr bool kIsMirrored<Mirrored<T>> = true;
template <class T>
inline constexpr bool kIsDistributed = kIsPerReplica<T> || kIsMirrored<T>;

/// Prints as the API pages do: `PerReplica:{`, a line `  i: component` each, `}`; a bare value prints as itself.
template <class T>
std::ostream& operator<<(std::ostream& out, const PerReplica<T>& value) {
  if (value.is_bare()) return out << repr(value[0]);
  return detail::print_components(out, "PerReplica", detail::reprs(value));
}

template <class T>
std::ostream& operator<<(std::ostream& out, const Mirrored<T>& value) {
  return detail::print_components(out, "Mirrored", detail::reprs(value));
}

template <class T>
std::string repr(const PerReplica<T>& value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

template <class T>
std::string repr(const Mirrored<T>& value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

/// Returns that form with the components as `print` shows them: `0: tf.Tensor(1.0, shape=(), dtype=float32)`.
template <class T>
std::string str(const PerReplica<T>& value) {
  if (value.is_bare()) return str(value[0]);
  std::ostringstream out;
  detail::print_components(out, "PerReplica", detail::strs(value));
  return out.str();
}

template <class T>
std::string str(const Mirrored<T>& value) {
  std::ostringstream out;
  detail::print_components(out, "Mirrored", detail::strs(value));
  return out.str();
}

}  // namespace lockstep
