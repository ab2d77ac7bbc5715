#pragma once

#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>

/// Functions that take the parts of a tuple: `[](torch::Tensor x, torch::Tensor y)` for a `std::tuple` of two tensors.
namespace lockstep::detail {

template <class F, class Tuple>
inline constexpr bool kTakesElementsOf = false;
template <class F, class... T>
inline constexpr bool kTakesElementsOf<F, std::tuple<T...>> = std::is_invocable_v<F, T...>;
template <class F, class A, class B>
inline constexpr bool kTakesElementsOf<F, std::pair<A, B>> = std::is_invocable_v<F, A, B>;

/// Whether F takes the parts of Value, and not Value itself.
template <class F, class Value>
inline constexpr bool kUnpacksTuple = !std::is_invocable_v<F, Value> && kTakesElementsOf<F, std::remove_cvref_t<Value>>;

/// Calls `fn(value)`, or `fn` with the parts of `value`.
template <class F, class Value>
decltype(auto) call_unpacked(F& fn, Value&& value) {
  if constexpr (kUnpacksTuple<F&, Value>) {
    return std::apply(fn, std::forward<Value>(value));
  } else {
    static_assert(std::is_invocable_v<F&, Value>, "the function must take the element, or the parts of the tuple");
    return fn(std::forward<Value>(value));
  }
}

/// What `call_unpacked` returns.
template <class F, class Value>
using unpacked_result_t = std::remove_cvref_t<decltype(call_unpacked(std::declval<F&>(), std::declval<Value>()))>;

}  // namespace lockstep::detail
