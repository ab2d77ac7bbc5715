#pragma once

#include <map>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include "lockstep/api.h"

/// Internal: the nests of `make_numpy_dataset`, in which lists become one tensor and all else keeps its structure.
namespace lockstep::detail {

/// Joins tensors along a new first dimension. Throws ValueError if there is none, or if they differ in shape or dtype.
LOCKSTEP_API at::Tensor stack_arrays(const std::vector<at::Tensor>& arrays);
/// Returns a copy of numbers as a tensor of one dimension.
LOCKSTEP_API at::Tensor stack_numbers(const void* numbers, size_t count, at::ScalarType dtype);

/// Returns the nest itself, if it is no list and has none.
template <class T>
T stack_lists(T leaf) {
  return leaf;
}

template <class T>
at::Tensor stack_lists(const std::vector<T>& list);
template <class... T>
auto stack_lists(std::tuple<T...> tuple);
template <class A, class B>
auto stack_lists(std::pair<A, B> pair);
template <class T>
auto stack_lists(const std::map<std::string, T>& map);

template <class T>
at::Tensor stack_lists(const std::vector<T>& list) {
  if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) {
    return stack_numbers(list.data(), list.size(), c10::CppTypeToScalarType<T>::value);
  } else {
    static_assert(std::is_same_v<decltype(stack_lists(std::declval<T>())), at::Tensor>,
                  "a list is stacked to one tensor, so it must have tensors, numbers or lists of them; use a tuple for "
                  "arrays that belong together");
    std::vector<at::Tensor> arrays;
    for (const T& item : list) arrays.push_back(stack_lists(item));
    return stack_arrays(arrays);
  }
}

template <class... T>
auto stack_lists(std::tuple<T...> tuple) {
  return std::apply([](auto&... part) { return std::tuple{stack_lists(std::move(part))...}; }, tuple);
}

template <class A, class B>
auto stack_lists(std::pair<A, B> pair) {
  return std::pair{stack_lists(std::move(pair.first)), stack_lists(std::move(pair.second))};
}

template <class T>
auto stack_lists(const std::map<std::string, T>& map) {
  std::map<std::string, decltype(stack_lists(std::declval<T>()))> stacked;
  for (const auto& [key, value] : map) stacked.emplace(key, stack_lists(value));
  return stacked;
}

}  // namespace lockstep::detail
