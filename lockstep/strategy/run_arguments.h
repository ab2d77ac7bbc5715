#pragma once

#include <array>
#include <map>
#include <optional>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/api.h"
#include "lockstep/base/nest.h"
#include "lockstep/value/regroup.h"

/// Internal: mistakes that the arguments of `run` show: batches that are not divided, and batches without rows.
namespace lockstep::detail {

class StrategyImpl;

/// Whether T has a `torch::data::Example` of values that are not distributed: a batch of a loader as it is.
template <class T>
inline constexpr bool kHasWholeBatch = false;
template <class Data, class Target>
inline constexpr bool kHasWholeBatch<torch::data::Example<Data, Target>> =
    std::is_same_v<selected_t<torch::data::Example<Data, Target>>, torch::data::Example<Data, Target>>;
template <class T>
inline constexpr bool kHasWholeBatch<std::vector<T>> = kHasWholeBatch<T>;
template <class T>
inline constexpr bool kHasWholeBatch<std::optional<T>> = kHasWholeBatch<T>;
template <class T, size_t N>
inline constexpr bool kHasWholeBatch<std::array<T, N>> = kHasWholeBatch<T>;
template <class... T>
inline constexpr bool kHasWholeBatch<std::tuple<T...>> = (kHasWholeBatch<T> || ...);
template <class A, class B>
inline constexpr bool kHasWholeBatch<std::pair<A, B>> = kHasWholeBatch<A> || kHasWholeBatch<B>;
template <class K, class V>
inline constexpr bool kHasWholeBatch<std::map<K, V>> = kHasWholeBatch<V>;
template <class K, class V>
inline constexpr bool kHasWholeBatch<std::unordered_map<K, V>> = kHasWholeBatch<V>;
template <class T>
  requires nest::PlainStruct<T>
inline constexpr bool kHasWholeBatch<T> = []<class... Field>(std::type_identity<std::tuple<Field&...>>) {
  return (kHasWholeBatch<Field> || ...);
}(std::type_identity<decltype(nest::detail::tie_fields(std::declval<T&>()))>{});

/// Throws ValueError if there are several replicas: each of them would compute the whole batch.
LOCKSTEP_API void refuse_whole_batch(const StrategyImpl& strategy);

template <class... Args>
void check_batches_are_divided(const StrategyImpl& strategy) {
  if constexpr ((kHasWholeBatch<Args> || ...)) refuse_whole_batch(strategy);
}

/// For each local replica: the first tensor without rows in the replica's part of distributed arguments; undefined if
/// there is none.
using EmptyArguments = std::vector<at::Tensor>;

/// Adds to the error of a run, which is being handled, that a replica had no rows, if the error may come from that. An
/// error that is no c10::Error cannot be changed: it is logged.
LOCKSTEP_API void explain_empty_batch(const StrategyImpl& strategy, const EmptyArguments& empty);

template <class... Args>
EmptyArguments find_empty_arguments(int num_replicas, const Args&... args) {
  EmptyArguments empty(num_replicas);
  for (int replica = 0; replica < num_replicas; ++replica) {
    const auto look_at = [&]<class Arg>(const Arg& arg) {
      if constexpr (!std::is_same_v<selected_t<Arg>, Arg>) {
        auto&& part = select(replica, arg);
        nest::for_each_tensor(
            [&](const at::Tensor& tensor) {
              const bool has_none = tensor.defined() && tensor.dim() > 0 && tensor.size(0) == 0;
              if (has_none && !empty[replica].defined()) empty[replica] = tensor;
            },
            std::as_const(part));
      }
    };
    (look_at(args), ...);
  }
  return empty;
}

}  // namespace lockstep::detail
