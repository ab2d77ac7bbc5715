#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/state/state.h"

namespace lockstep::progress {
class Task;
}

/// Internal: loading in two passes. First each object says what it wants, which changes nothing; if all of it is there
/// and fits, everything is read at once, in the order of the files, and then the objects take it over.
namespace lockstep::detail {

/// The memory that takes a tensor's elements: made when the reading begins, after all checks.
using MakeTargets = std::function<std::vector<StatePiece>()>;

/// What is loaded from one state. The state must outlive it.
class LOCKSTEP_API LoadPlan {
 public:
  explicit LoadPlan(const State& state) : state_(state) {}

  /// A view of the plan for an object whose names begin with `parent` (empty: all names).
  class LOCKSTEP_API Part {
   public:
    Part(LoadPlan& plan, std::string parent) : plan_(&plan), parent_(std::move(parent)) {}

    Part below(const std::string& child) const;
    bool has(const std::string& name) const;
    /// The value, which does not count as used; null where there is none.
    const State::Value* find(const std::string& name) const;
    /// The names below this part, without its own.
    std::vector<std::string> names() const;
    /// The tensor, which counts as used; null where it is missing (counted) or of another kind, dtype or shape
    /// (counted). `sizes` null: any.
    const StateTensor* want_tensor(const std::string& name, at::ScalarType dtype, const std::vector<int64_t>* sizes);
    /// The number or text, which counts as used; null where it is missing or of another type (counted). An integer is
    /// found as a number, too.
    const State::Value* want_value(const std::string& name, const char* kind);
    int64_t integer_or(const std::string& name, int64_t otherwise);
    double number_or(const std::string& name, double otherwise);
    std::string text_or(const std::string& name, const std::string& otherwise);

    /// Reads elements of the tensor into memory. Targets may be on any device; those of several calls must not overlap.
    void read(const std::string& name, at::ScalarType dtype, const std::vector<int64_t>& sizes, MakeTargets targets);
    /// The same for all elements and one tensor, contiguous or not.
    void read(const std::string& name, const at::Tensor& target);
    /// Calls it after everything has been read, in the order of the calls.
    void after(std::function<void()> finish) { plan_->finish_.push_back(std::move(finish)); }
    /// Counts a value that does not fit.
    void unfitting(const std::string& name, const std::string& why);
    /// A name that may be there and is not used.
    void ignore(const std::string& name);
    /// The whole state below this part, all of which counts as used: for types with their own `load_state`.
    State take_all();

   private:
    std::string full(const std::string& name) const;

    LoadPlan* plan_;
    std::string parent_;
  };

  Part all() { return Part(*this, ""); }

  /// Throws ValueError that lists everything that is missing, unexpected or unfitting, before anything was changed, if
  /// `options.strict`. Then reads and calls what `after` was given. After errors of these (DataError where a file is
  /// damaged) objects may hold a part of the new values.
  LoadResult execute(const LoadOptions& options);
  /// The three steps of `execute`, between which workers can agree: checks what was planned, reads it, and calls what
  /// `after` was given.
  LoadResult check(const LoadOptions& options) const;
  void read(progress::Task* task = nullptr);
  void finish();
  /// What would not be loaded.
  LoadResult problems() const;

 private:
  struct Read {
    const StateTensor* from = nullptr;
    MakeTargets targets;
  };

  const State& state_;
  std::set<std::string> used_;
  LoadResult result_;
  std::vector<Read> reads_;
  /// Copies of what was read elsewhere, before `finish_`.
  std::vector<std::function<void()>> finish_reads_;
  std::vector<std::function<void()>> finish_;
};

/// Reads elements of tensors into memory, all together: files in the order of their bytes and by several threads.
/// `task` counts the bytes of files.
struct TensorRead {
  const StateTensor* from = nullptr;
  std::vector<StatePiece> targets;
};
LOCKSTEP_API void read_tensors(const std::vector<TensorRead>& reads, progress::Task* task = nullptr);

/// Whether two tensors are one under two names, or the same elements of the same files.
LOCKSTEP_API bool are_same_elements(const StateTensor& a, const StateTensor& b);

}  // namespace lockstep::detail
