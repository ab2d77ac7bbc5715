#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/xla/engine/pending_work.h"
#include "lockstep/xla/engine/program.h"
#include "lockstep/xla/tensor/lazy_storage.h"

/// Internal: what a call of a pure step did on one replica, for comparisons with other calls and for replays.
namespace lockstep::xla {

/// A number that a step is called with, as opposed to one that its function contains.
using StepNumber = std::variant<int64_t, double>;

/// How a number of the program follows from one that the step is called with.
enum class NumberRule : uint8_t {
  Same,
  Negative,
  OneMinus,
  /// It is where a slice begins, and the number of the step is a position of it.
  Position
};

struct RecordedStep {
  /// Where an argument of the program comes from: an argument of the step, a storage that outlives it, or a constant.
  struct Source {
    int argument = -1;
    std::weak_ptr<LazyStorage*> storage;
    Value constant;
    Dtype dtype = at::kFloat;
    Shape shape;
    LayoutPtr layout = nullptr;
    /// The function of LibTorch that reads it, for messages.
    const char* reader = "";
  };

  /// Where a result goes: storages that outlive the step, and results of the step.
  struct Sink {
    struct Holder {
      std::weak_ptr<LazyStorage*> storage;
      /// Whether it held an argument before the step: it is state, not only a result.
      bool is_state = false;

      bool is(const LazyStorage* other) const {
        const auto alive = storage.lock();
        return alive && *alive == other;
      }
    };
    std::vector<Holder> holders;
    Dtype dtype = at::kFloat;
    Shape shape;
    LayoutPtr layout = nullptr;
    const char* origin = "";
  };

  struct Number {
    uint64_t bits = 0;
    Dtype dtype = at::kDouble;
    /// Its position among the seeds of a run; -1 if it is none.
    int64_t draw = -1;
    const char* origin = "";
    /// The number of the step that it follows from; -1 if it is a constant.
    int argument = -1;
    NumberRule rule = NumberRule::Same;
    /// The values that it may have: starts of slices lie inside of what they cut, and no integer is divided by 0.
    int64_t least = INT64_MIN;
    int64_t most = INT64_MAX;
    bool may_be_zero = true;
    /// The positions that it follows from; null if it is not where a view begins.
    std::shared_ptr<const Positions> positions = nullptr;
    /// NumberRule::Position: it is `at_zero` for position 0, and `unit` more for each further one.
    int64_t at_zero = 0;
    int64_t unit = 1;
    int64_t most_position = 0;
    /// The function of LibTorch allows only some values: those between two that it has accepted.
    bool is_checked = false;
    double least_accepted = 0;
    double most_accepted = 0;

    bool allows(const StepNumber& given) const;
  };

  /// Of each node of the graph a hash, and the function of LibTorch that made it.
  struct Operation {
    uint64_t hash = 0;
    const char* origin = "";
  };

  std::vector<Source> sources;
  std::vector<Sink> sinks;
  std::vector<int> donated_to;
  std::vector<uint64_t> key;
  std::vector<Operation> operations;
  std::vector<Number> numbers;
  /// What the step was called with, and whether each of them has differed from call to call.
  std::vector<StepNumber> given;
  std::vector<char> given_changes;
  /// How many of them, the first ones, the caller gives; optimizers give the others.
  size_t num_from_caller = 0;
  /// Those of the caller that have differed although no number of the program follows from them: the function may
  /// branch on them.
  std::vector<size_t> unused_given;
  /// Pairs of them that a replay needs to be equal: which of the two a number follows from is not known.
  std::vector<std::pair<int, int>> equal_given;
  /// The sink of each result of the step; -1 for none.
  std::vector<int> returned;
  int launches = 0;
  /// Why the step cannot be replayed; empty if nothing forbids it.
  std::string refusal;

  /// Takes over what a program is about to compute. `arguments` are the storages of the step's arguments, null for
  /// undefined ones.
  void record(const PendingWork& work, const std::vector<LazyStorage*>& arguments);
  /// Finds the results of the step among those of the program.
  void set_results(const std::vector<at::Tensor>& results);
  /// Finds out which numbers follow from those that the step was called with, by comparison with an earlier call.
  /// Returns how the calls differ in what a replay would not see; empty if they do not.
  std::string compare_with(const RecordedStep& last);

  /// The numbers that may select the program: if it is another one than in an earlier call, those that the calls differ
  /// in; otherwise `unused_given`.
  std::vector<size_t> numbers_that_select(const RecordedStep& last) const;
  /// The bits of a number of the program in a call with the numbers `now`.
  uint64_t number_bits_with(const Number& number, const std::vector<StepNumber>& now) const;
};

/// The value of the number that follows from `given` by a rule, as a number of the dtype: its bits.
uint64_t bits_by_rule(const StepNumber& given, NumberRule rule, Dtype dtype);

}  // namespace lockstep::xla
