#pragma once

#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/data/example.h>

#include "lockstep/base/nest.h"

namespace lockstep {

/// What one replica gets of a batch.
struct Batch {
  std::vector<at::Tensor> inputs;
  /// Empty where there are none, for predictions.
  std::vector<at::Tensor> targets = {};
  /// One weight for each row; nothing: all are 1.
  std::optional<at::Tensor> weights = std::nullopt;
  /// Internal: inputs of one row, where there are no rows; see `Trainer::forward`.
  std::vector<at::Tensor> spare = {};

  const at::Tensor& input() const { return inputs.at(0); }
  const at::Tensor& target() const { return targets.at(0); }
  int64_t rows() const { return inputs.at(0).size(0); }
};

/// What a model returns: its tensors in the order of its result.
using Outputs = std::vector<at::Tensor>;

namespace detail {

template <class T>
inline constexpr bool kIsTupleBatch = false;
template <class... T>
inline constexpr bool kIsTupleBatch<std::tuple<T...>> = true;
template <class A, class B>
inline constexpr bool kIsTupleBatch<std::pair<A, B>> = true;

template <class T>
inline constexpr bool kIsExampleBatch = false;
template <class Data, class Target>
inline constexpr bool kIsExampleBatch<torch::data::Example<Data, Target>> = true;

/// Elements that `Trainer` reads: see `TrainerInput`.
template <class T>
constexpr bool is_batch() {
  if constexpr (std::is_same_v<T, Batch> || std::is_same_v<T, at::Tensor> || kIsExampleBatch<T>) {
    return true;
  } else if constexpr (kIsTupleBatch<T>) {
    return std::tuple_size_v<T> <= 3;
  } else {
    return false;
  }
}

/// Returns an element of a dataset as a batch.
template <class T>
Batch to_batch(const T& element) {
  if constexpr (std::is_same_v<T, Batch>) {
    return element;
  } else if constexpr (std::is_same_v<T, at::Tensor>) {
    return {{element}};
  } else if constexpr (kIsExampleBatch<T>) {
    if constexpr (requires { element.target; }) {
      return {nest::flatten(element.data), nest::flatten(element.target)};
    } else {
      return {nest::flatten(element.data)};
    }
  } else {
    Batch batch{nest::flatten(std::get<0>(element))};
    if constexpr (std::tuple_size_v < T >> 1) batch.targets = nest::flatten(std::get<1>(element));
    if constexpr (std::tuple_size_v < T >> 2) {
      static_assert(std::is_same_v<std::remove_cvref_t<std::tuple_element_t<2, T>>, at::Tensor>,
                    "the weights of a batch are one tensor");
      batch.weights = std::get<2>(element);
    }
    return batch;
  }
}

}  // namespace detail
}  // namespace lockstep
