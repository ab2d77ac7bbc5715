#pragma once

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/base/nest.h"
#include "lockstep/strategy/replay/step_replay.h"
#include "lockstep/strategy/run_replicas.h"
#include "lockstep/strategy/run_rows.h"
#include "lockstep/value/regroup.h"

namespace lockstep {

namespace detail {

/// The leaves of arguments or results: the tensors, the numbers, and an encoding of all others.
class Leaves {
 public:
  template <class T>
  void add(const T& nest) {
    nest::for_each_leaf([&](const auto& leaf) { add_leaf(leaf); }, nest);
  }

  /// Replaces the tensors of a nest of the same structure.
  template <class T>
  static void replace(T& nest, const std::vector<at::Tensor>& tensors, size_t& next) {
    nest::for_each_leaf(
        [&](auto& leaf) {
          if constexpr (std::is_same_v<std::remove_cvref_t<decltype(leaf)>, at::Tensor>) leaf = tensors.at(next++);
        },
        nest);
  }

  std::vector<at::Tensor> tensors;
  std::vector<std::variant<int64_t, double>> numbers;
  std::string others;
  /// The type of a leaf that has no encoding; empty if all have one.
  std::string unknown;

 private:
  template <class Leaf>
  void add_leaf(const Leaf& leaf) {
    if constexpr (std::is_same_v<Leaf, at::Tensor>) {
      tensors.push_back(leaf);
    } else if constexpr (std::is_same_v<Leaf, bool> || std::is_enum_v<Leaf>) {
      others.append(reinterpret_cast<const char*>(&leaf), sizeof(leaf));
    } else if constexpr (std::is_integral_v<Leaf>) {
      numbers.emplace_back(static_cast<int64_t>(leaf));
      others.push_back('i');
    } else if constexpr (std::is_floating_point_v<Leaf>) {
      numbers.emplace_back(static_cast<double>(leaf));
      others.push_back('f');
    } else if constexpr (std::is_same_v<Leaf, std::string>) {
      others.append(leaf).push_back('\0');
    } else {
      unknown = typeid(Leaf).name();
    }
  }
};

/// Whether the only argument is a tuple that is unpacked for the function.
template <class F, class Arguments>
inline constexpr bool kUnpacksOnly = false;
template <class F, class Only>
inline constexpr bool kUnpacksOnly<F, std::tuple<Only>> = kUnpacksArgument<F, Only>;

}  // namespace detail

/// A step that is declared pure: what `strategy.pure(fn)` returns. `step(args...)` does what `strategy.run(fn,
/// args...)` does.
///
/// `fn` must depend on its arguments and on state on the devices (variables, modules, optimizers) only: no printing, no
/// counters, no branches on values, no random numbers but LibTorch's. A strategy that compiles calls it until two calls
/// did the same; then it only starts the compiled program. Replicas on a GPU call it twice, record the third call into
/// a CUDA graph and then only start the graph; a step that cannot be recorded runs as `run` does, and one line in the
/// log says why (docs/gpu.md). Arguments are moved to the replicas' devices. Modes and options of modules (`eval()`,
/// `requires_grad_`, `p` of dropout), options of optimizers and the gradient mode may change between calls. Other
/// strategies call the function every time.
///
/// Each value of a bool, an enum or a string among the arguments is a step of its own, and so are the first three
/// values of a number. From the fourth on the number is an argument of a compiled program: the function must only
/// compute with it. A graph has no such arguments: give numbers that change as tensors.
///
/// At its 10th, 100th and every 1,000th replay a step is traced or recorded again; a difference is a ValueError, and so
/// is a function that can no longer be recorded into a graph.
///
///     auto step = strategy.pure([&](torch::Tensor x, torch::Tensor y) { ... return loss.detach(); });
///     for (auto [x, y] : batches) total += strategy.reduce("sum", step(x, y));
///
/// One thread at a time may use it.
template <class F>
class PureStep {
 public:
  PureStep(std::shared_ptr<detail::StrategyImpl> strategy, F fn)
      : strategy_(std::move(strategy)), fn_(std::move(fn)), replay_(detail::make_replay(*strategy_)) {}

  template <class... Args>
  auto operator()(const Args&... args) {
    detail::check_can_run(*strategy_);
    detail::check_batches_are_divided<Args...>(*strategy_);
    if (!replay_) return detail::run_replicas(*strategy_, fn_, args...);
    using Own = std::tuple<std::remove_cvref_t<selected_t<Args>>...>;
    std::vector<Own> own;
    detail::StepArguments arguments;
    rows_.clear();
    for (int replica = 0; replica < detail::num_local_replicas(*strategy_); ++replica) {
      own.emplace_back(select(replica, args)...);
      rows_.push_back(detail::rows_of(replica, args...));
      detail::Leaves leaves;
      std::apply([&](const auto&... each) { (leaves.add(each), ...); }, own.back());
      if (!leaves.unknown.empty()) replay_->refuse("an argument is neither tensor nor number: " + leaves.unknown);
      arguments.others += leaves.others + '\0';
      arguments.tensors.push_back(std::move(leaves.tensors));
      arguments.numbers.push_back(std::move(leaves.numbers));
    }
    arguments.tensors = replay_->placed(arguments.tensors);
    return call<Own>(own, arguments);
  }

  /// Whether the next call replays the step if its arguments are like the last ones.
  bool is_replayed() const { return replay_ && replay_->is_ready(); }
  /// Why the last call called the function.
  std::string why_not() const { return replay_ ? replay_->why_not() : "this strategy does not compile"; }
  /// Traces a replayed step again at every so many calls only; 0 for never. The environment variable
  /// LOCKSTEP_PURE_CHECK sets the default.
  void check_every(int64_t calls) {
    if (replay_) replay_->check_every(calls);
  }

 private:
  template <class Own>
  decltype(auto) call_one(Own& own, std::optional<int64_t> num_rows) {
    const detail::RowsOfBatchScope rows(num_rows);
    if constexpr (detail::kUnpacksOnly<F&, Own>) {
      return std::apply(fn_, std::get<0>(own));
    } else {
      return std::apply(fn_, own);
    }
  }

  template <class Own>
  auto call(std::vector<Own>& own, const detail::StepArguments& arguments) {
    using Result = std::remove_cvref_t<decltype(call_one(own[0], std::nullopt))>;
    detail::StepReplay::Tensors tensors;
    if constexpr (std::is_void_v<Result>) {
      if (replay_->replay(arguments, tensors)) return;
      do {
        run(own, arguments, [&](int replica) { call_one(own[replica], rows_[replica]); });
        tensors.assign(own.size(), {});
      } while (!replay_->end_run(tensors));
    } else {
      if (replay_->replay(arguments, tensors))
        return regrouped(std::vector<Result>(tensors.size(), structure<Result>()), tensors);
      std::vector<Result> results;
      do {
        results = run_for_results<Result>(own, arguments, tensors);
      } while (!replay_->end_run(tensors));
      return regrouped(std::move(results), tensors);
    }
  }

  /// Runs the function, keeps the structure of its results, and lists their tensors.
  template <class Result, class Own>
  std::vector<Result> run_for_results(std::vector<Own>& own, const detail::StepArguments& arguments,
                                      detail::StepReplay::Tensors& tensors) {
    std::vector<std::optional<Result>> results(own.size());
    run(own, arguments,
        [&](int replica) { results[replica].emplace(without_views(call_one(own[replica], rows_[replica]))); });
    detail::Leaves leaves;
    std::vector<Result> made;
    tensors.clear();
    for (auto& result : results) {
      leaves.tensors.clear();
      leaves.add(*result);
      tensors.push_back(leaves.tensors);
      made.push_back(*std::move(result));
    }
    const bool only_tensors = leaves.others.empty() && leaves.numbers.empty() && leaves.unknown.empty();
    if (!only_tensors) replay_->refuse("a result is not a tensor");
    replay_->result_structure() = std::make_shared<Result>(without_tensors(made[0]));
    return made;
  }

  template <class Own, class Body>
  void run(std::vector<Own>& own, const detail::StepArguments& arguments, Body&& body) {
    for (;;) {
      const detail::StepReplay::Tensors& tensors = replay_->begin_run(arguments);
      try {
        for (size_t replica = 0; replica < own.size(); ++replica) {
          size_t next = 0;
          std::apply([&](auto&... each) { (detail::Leaves::replace(each, tensors[replica], next), ...); },
                     own[replica]);
        }
        return detail::call_replicas_on(*strategy_, body, PerReplica<Own>(own));
      } catch (...) {
        if (!replay_->run_failed()) throw;
      }
    }
  }

  template <class Result>
  Result without_views(Result result) {
    nest::for_each_leaf(
        [&](auto& leaf) {
          if constexpr (std::is_same_v<std::remove_cvref_t<decltype(leaf)>, at::Tensor>) {
            leaf = replay_->without_view(leaf);
          }
        },
        result);
    return result;
  }

  template <class Result>
  static Result without_tensors(Result result) {
    nest::for_each_leaf(
        [](auto& leaf) {
          if constexpr (std::is_same_v<std::remove_cvref_t<decltype(leaf)>, at::Tensor>) leaf = at::Tensor();
        },
        result);
    return result;
  }

  template <class Result>
  const Result& structure() const {
    return *static_cast<const Result*>(replay_->result_structure().get());
  }

  template <class Result>
  static auto regrouped(std::vector<Result> results, const detail::StepReplay::Tensors& tensors) {
    std::vector<const Result*> parts;
    for (size_t replica = 0; replica < tensors.size(); ++replica) {
      size_t next = 0;
      detail::Leaves::replace(results[replica], tensors[replica], next);
      parts.push_back(&results[replica]);
    }
    return regroup<Result>(std::span<const Result* const>(parts));
  }

  std::shared_ptr<detail::StrategyImpl> strategy_;
  F fn_;
  std::shared_ptr<detail::StepReplay> replay_;
  /// The rows of each replica's batch in the present call.
  std::vector<std::optional<int64_t>> rows_;
};

}  // namespace lockstep
