#pragma once

#include <utility>

/// The names that TensorFlow's API pages give the methods of a strategy. Each forwards to the method without
/// `experimental_`.
namespace lockstep {

template <class Self>
class DocumentedNames {
 public:
  template <class T>
  auto experimental_local_results(const T& value) const {
    return self().local_results(value);
  }

  template <class T>
  auto unwrap(const T& value) const {
    return self().local_results(value);
  }

  template <class F>
  auto experimental_distribute_values_from_function(F&& value_fn) const {
    return self().distribute_values_from_function(std::forward<F>(value_fn));
  }

  template <class Dataset, class... Options>
  auto experimental_distribute_dataset(Dataset&& dataset, const Options&... options) const {
    return self().distribute_dataset(std::forward<Dataset>(dataset), options...);
  }

  template <class F, class... Options>
  auto experimental_distribute_datasets_from_function(F&& dataset_fn, const Options&... options) const {
    return self().distribute_datasets_from_function(std::forward<F>(dataset_fn), options...);
  }

  template <class T>
  auto experimental_make_numpy_dataset(T arrays) const {
    return self().make_numpy_dataset(std::move(arrays));
  }

  template <class F, class... Args>
  auto experimental_run_v2(F&& fn, const Args&... args) const {
    return self().run(std::forward<F>(fn), args...);
  }

  /// Runs `fn` on the next element of `iterator`, or without arguments.
  template <class F>
  auto experimental_run(F&& fn) const {
    return self().run(std::forward<F>(fn));
  }

  template <class F, class Iterator>
  auto experimental_run(F&& fn, Iterator& iterator) const {
    return self().run(std::forward<F>(fn), iterator.get_next());
  }

 private:
  const Self& self() const { return static_cast<const Self&>(*this); }
};

}  // namespace lockstep
