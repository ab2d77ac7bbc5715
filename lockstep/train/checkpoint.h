#pragma once

#include <concepts>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/state/state.h"
#include "lockstep/strategy/state/state_of.h"

namespace lockstep {

namespace detail {

/// Internal: what one object of a checkpoint has to save.
struct ObjectState {
  std::string name;
  State state;
  /// Whether it belongs to the strategy, so that all workers hold equal values. Of other objects the first worker's
  /// values count.
  bool of_strategy = false;
};

struct CheckpointObjects;
class LoadPlan;
class StateObject;
class StrategyImpl;

}  // namespace detail

/// The objects of a training that are saved and restored together, each under a name.
///
///     Checkpoint checkpoint({{"model", model}, {"adam", adam}, {"train", dataset}, {"schedule", scheduler}});
///
/// Objects are modules, optimizers, variables, distributed datasets and iterators, schedulers, LibTorch's modules, and
/// anything with `state()` and `load_state()` (`Stateful`), which must outlive the checkpoint. All that belong to a
/// strategy belong to the same one. Random numbers are always part of it, under the name "random". A cheap handle.
class LOCKSTEP_API Checkpoint {
 public:
  /// A name and an object.
  struct Entry {
    template <class T>
      requires(!std::convertible_to<T, std::shared_ptr<detail::StateObject>>)
    Entry(std::string name_of_object, T&& of) : name(std::move(name_of_object)), object(detail::state_object(of)) {}
    Entry(std::string name_of_object, std::shared_ptr<detail::StateObject> of)
        : name(std::move(name_of_object)), object(std::move(of)) {}

    std::string name;
    std::shared_ptr<detail::StateObject> object;
  };

  /// ValueError for an empty name, one with a point, one that is there twice, and for objects of different strategies.
  Checkpoint(std::initializer_list<Entry> entries) : Checkpoint(std::vector<Entry>(entries)) {}
  explicit Checkpoint(std::vector<Entry> entries);

  /// Returns all names and values; see `State`.
  State state() const;
  /// Loads all objects, or none if something is missing, superfluous or does not fit. After an error behind these
  /// checks (a damaged file, `load_state` of a user's type) objects may have a part of the new values. All workers call
  /// it together.
  LoadResult load_state(const State& state, const LoadOptions& options = {});

  /// Internal: the strategy of the objects, or the current one where none belongs to a strategy.
  const std::shared_ptr<detail::StrategyImpl>& strategy() const;
  /// Internal: the states of the objects, in the order of the constructor.
  std::vector<detail::ObjectState> collect() const;
  /// Internal: plans to load all objects.
  void plan_load(detail::LoadPlan& plan) const;

 private:
  std::shared_ptr<detail::CheckpointObjects> objects_;
};

}  // namespace lockstep
