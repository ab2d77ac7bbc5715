#pragma once

#include "lockstep/data/codec.h"
#include "lockstep/data/named.h"

/// Inside: the type of one row of a batch; the reverse of `batched_t`, except that a number has become a tensor.
namespace lockstep::data {

template <class T>
struct Unbatched {
  using type = T;
};
template <class T>
using unbatched_t = typename Unbatched<T>::type;

template <class T>
struct Unbatched<List<T>> {
  using type = T;
};
template <class... T>
struct Unbatched<std::tuple<T...>> {
  using type = std::tuple<unbatched_t<T>...>;
};
template <class A, class B>
struct Unbatched<std::pair<A, B>> {
  using type = std::pair<unbatched_t<A>, unbatched_t<B>>;
};
template <class T, size_t N>
struct Unbatched<std::array<T, N>> {
  using type = std::array<unbatched_t<T>, N>;
};
template <class T>
struct Unbatched<std::vector<T>> {
  using type = std::vector<unbatched_t<T>>;
};
template <class T>
struct Unbatched<std::optional<T>> {
  using type = std::optional<unbatched_t<T>>;
};
template <class T>
struct Unbatched<std::map<std::string, T>> {
  using type = std::map<std::string, unbatched_t<T>>;
};
template <class T>
struct Unbatched<std::unordered_map<std::string, T>> {
  using type = std::unordered_map<std::string, unbatched_t<T>>;
};
template <class Data, class Target>
struct Unbatched<torch::data::Example<Data, Target>> {
  using type = torch::data::Example<unbatched_t<Data>, unbatched_t<Target>>;
};

}  // namespace lockstep::data
