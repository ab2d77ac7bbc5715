#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/data/dataset.h"

/// Datasets of values in memory. Datasets of files are in files.h.
namespace lockstep::data {

namespace detail {

LOCKSTEP_API NodePtr make_range(int64_t start, int64_t stop, int64_t step);
LOCKSTEP_API NodePtr make_elements(std::vector<Element> elements, const char* name);
LOCKSTEP_API NodePtr make_slices(Element batch);

/// Stores the next element or returns false.
using ElementGenerator = std::function<bool(Element&)>;
LOCKSTEP_API NodePtr make_generator(std::function<ElementGenerator()> start, ElementSpec spec);

template <class T>
Element encoded(T value) {
  Element element;
  encode(std::move(value), element);
  return element;
}

}  // namespace detail

struct GeneratorOptions {
  /// The spec of elements where their type does not determine it: shapes and dtypes of tensors.
  std::optional<ElementSpec> spec = std::nullopt;
};

/// The numbers from 0 to `stop`, which is excluded.
inline Dataset<int64_t> range(int64_t stop) { return Dataset<int64_t>(detail::make_range(0, stop, 1)); }
/// The numbers from `start` to `stop`, which is excluded, in steps of `step`, which may be negative.
inline Dataset<int64_t> range(int64_t start, int64_t stop, int64_t step = 1) {
  return Dataset<int64_t>(detail::make_range(start, stop, step));
}

/// One element: `value`.
template <class T>
Dataset<T> from_tensors(T value) {
  std::vector<Element> elements;
  elements.push_back(detail::encoded(std::move(value)));
  return Dataset<T>(detail::make_elements(std::move(elements), "from_tensors"));
}

/// The rows of tensors: element i has row i of each. All must have the same number of rows. Elements share the memory
/// of the tensors.
///
/// ```
/// auto train = data::from_tensor_slices(std::tuple{images, labels});      // Dataset<std::tuple<Tensor, Tensor>>
/// ```
template <class T>
Dataset<unbatched_t<T>> from_tensor_slices(T tensors) {
  return Dataset<unbatched_t<T>>(detail::make_slices(detail::encoded(std::move(tensors))));
}

/// The elements of a vector: file names, numbers, structs.
template <class T>
Dataset<T> from_vector(const std::vector<T>& values) {
  std::vector<Element> elements;
  for (const auto& value : values) elements.push_back(detail::encoded<T>(value));
  return Dataset<T>(detail::make_elements(std::move(elements), "from_vector"));
}

/// The values of a generator. `start` is called for every iterator and returns a function that returns a
/// `std::optional<T>`, empty at the end.
///
/// ```
/// auto squares = data::from_generator([] {
///   return [i = int64_t{-1}]() mutable { return ++i < 10 ? std::optional(i * i) : std::nullopt; };
/// });
/// ```
template <class Start>
auto from_generator(Start start, GeneratorOptions options = {}) {
  using Generator = std::invoke_result_t<Start&>;
  using T = typename std::remove_cvref_t<std::invoke_result_t<Generator&>>::value_type;
  auto erased = [start = std::move(start)]() mutable -> detail::ElementGenerator {
    return [generator = start()](Element& element) mutable {
      std::optional<T> value = generator();
      if (value) detail::encode<T>(*std::move(value), element);
      return value.has_value();
    };
  };
  return Dataset<T>(detail::make_generator(std::move(erased), options.spec ? *options.spec : detail::static_spec<T>()));
}

/// A random-access dataset of `torch::data`: what its `get(index)` returns for each index below its `size()`.
/// With several threads in the pipeline each uses a copy of the dataset.
template <class TorchDataset>
  requires requires(TorchDataset dataset) {
    dataset.get(size_t{0});
    *dataset.size();
  }
auto from_torch(TorchDataset dataset) {
  const auto size = static_cast<int64_t>(dataset.size().value());
  return range(size).map([dataset = std::move(dataset)](int64_t index) mutable { return dataset.get(index); });
}

}  // namespace lockstep::data
