#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/api.h"
#include "lockstep/base/error.h"
#include "lockstep/data/element/nest_codec.h"
#include "lockstep/data/node.h"

// Declared here, so that programs without loaders do not compile LibTorch's headers of them.
namespace torch::data {
template <typename Dataset, typename Batch, typename BatchRequest>
class DataLoaderBase;
template <typename Dataset, typename Sampler>
class StatelessDataLoader;
namespace datasets {
template <typename Self, typename Batch, typename BatchRequest>
class BatchDataset;
}  // namespace datasets
namespace samplers {
template <typename BatchRequest>
class DistributedSampler;
}  // namespace samplers
}  // namespace torch::data

/// Internal: what `from_torch` does with the types of `torch::data`.
namespace lockstep::data::detail {

template <class D, class B, class R>
std::true_type derives_from_loader(const torch::data::DataLoaderBase<D, B, R>*);
std::false_type derives_from_loader(const void*);
template <class S, class B, class R>
std::true_type derives_from_dataset(const torch::data::datasets::BatchDataset<S, B, R>*);
std::false_type derives_from_dataset(const void*);
template <class R>
std::true_type derives_from_distributed(const torch::data::samplers::DistributedSampler<R>*);
std::false_type derives_from_distributed(const void*);

/// The loader behind a loader or a pointer to one.
template <class T>
struct PointedTo {
  using type = T;
};
template <class T, class Deleter>
struct PointedTo<std::unique_ptr<T, Deleter>> {
  using type = T;
};
template <class T>
struct PointedTo<std::shared_ptr<T>> {
  using type = T;
};
template <class T>
using loader_of_t = typename PointedTo<std::remove_cvref_t<T>>::type;

/// Whether the sampler of a loader gives every process its own examples.
template <class Loader>
inline constexpr bool kIsSampledByWorker = false;
template <class Dataset, class Sampler>
inline constexpr bool kIsSampledByWorker<torch::data::StatelessDataLoader<Dataset, Sampler>> =
    decltype(derives_from_distributed(static_cast<const Sampler*>(nullptr)))::value;

/// Joins tensors of one shape along a new first dimension; ValueError where they differ.
LOCKSTEP_API at::Tensor stack_examples(const std::vector<at::Tensor>& parts);
LOCKSTEP_API std::vector<size_t> to_indices(const at::Tensor& numbers);

/// How a batch of `torch::data` becomes an element. A list of examples, from a dataset without `Stack`, is stacked.
template <class Batch>
struct TorchBatch {
  using type = Batch;
  static Batch stacked(Batch batch) { return batch; }
};

template <class Data, class Target>
struct TorchBatch<std::vector<torch::data::Example<Data, Target>>> {
  using type = torch::data::Example<Data, Target>;
  static_assert(std::is_same_v<Data, at::Tensor> && (std::is_same_v<Target, at::Tensor> || std::is_void_v<Target>),
                "examples of other parts than tensors must be collated: "
                "dataset.map(torch::data::transforms::Collate<...>(...))");

  static type stacked(const std::vector<type>& examples) {
    std::vector<at::Tensor> data;
    for (const type& example : examples) data.push_back(example.data);
    if constexpr (std::is_void_v<Target>) {
      return type(stack_examples(data));
    } else {
      std::vector<at::Tensor> targets;
      for (const type& example : examples) targets.push_back(example.target);
      return type(stack_examples(data), stack_examples(targets));
    }
  }
};

template <class T>
struct TorchBatch<std::vector<T>> {
  static_assert(!std::is_same_v<T, T>,
                "the batches of this dataset are lists of examples: make one example of each with "
                "dataset.map(torch::data::transforms::Stack<>()) or transforms::Collate");
};

/// A loader without its types. One thread at a time uses it.
class LOCKSTEP_API TorchSource {
 public:
  virtual ~TorchSource();
  /// Starts an epoch, whether or not the one before has ended.
  virtual void start() = 0;
  /// Stores the next batch, or returns false at the end of the epoch.
  virtual bool next(Element& element) = 0;
};

/// `loader` is the address of the loader: one iterator at a time reads it.
LOCKSTEP_API NodePtr make_torch_loader(std::shared_ptr<TorchSource> source, const void* loader, ElementSpec spec,
                                       int64_t batch_size);

/// Reaches the parts of a loader that its iterator hides: `begin` refuses to start an epoch before the last one has
/// ended, and an iterator that threw cannot continue.
template <class Loader>
class LoaderParts : public Loader {
 public:
  static void drain(Loader& loader) { (loader.*(&LoaderParts::shuttle_)).drain(); }
  static auto next_batch(Loader& loader) { return (loader.*(&LoaderParts::next))(); }
};

template <class Loader>
class LoaderSource final : public TorchSource {
 public:
  using Batch = TorchBatch<typename Loader::BatchType>;

  explicit LoaderSource(std::shared_ptr<Loader> loader) : loader_(std::move(loader)) {}

  void start() override {
    LoaderParts<Loader>::drain(*loader_);
    loader_->begin();
  }

  bool next(Element& element) override {
    auto batch = LoaderParts<Loader>::next_batch(*loader_);
    if (batch) encode<typename Batch::type>(Batch::stacked(*std::move(batch)), element);
    return batch.has_value();
  }

 private:
  std::shared_ptr<Loader> loader_;
};

/// Returns the loader: owned where `source` is a temporary pointer or a shared one, otherwise the user keeps it.
template <class Source>
std::shared_ptr<loader_of_t<Source>> shared_loader(Source&& source) {
  using Loader = loader_of_t<Source>;
  using Value = std::remove_cvref_t<Source>;
  if constexpr (std::is_same_v<Value, Loader>) {
    static_assert(std::is_lvalue_reference_v<Source> && !std::is_const_v<std::remove_reference_t<Source>>,
                  "a loader is given by reference, or as the pointer that make_data_loader returns");
    return std::shared_ptr<Loader>(std::shared_ptr<void>(), &source);
  } else {
    LOCKSTEP_CHECK_VALUE(source != nullptr, "[from_torch] the loader must not be null; was it moved from?");
    if constexpr (std::is_same_v<Value, std::shared_ptr<Loader>>) {
      return source;
    } else if constexpr (std::is_lvalue_reference_v<Source>) {
      return std::shared_ptr<Loader>(std::shared_ptr<void>(), source.get());
    } else {
      return std::shared_ptr<Loader>(std::forward<Source>(source));
    }
  }
}

}  // namespace lockstep::data::detail
