#include <algorithm>
#include <memory>
#include <utility>

#include <torch/types.h>

#include "lockstep/base/error.h"
#include "lockstep/data/independent_rows.h"
#include "lockstep/data/sources.h"
#include "tools/train/examples.h"

namespace lockstep::tools {
namespace {

using KeptExamples = std::shared_ptr<const std::vector<bool>>;

at::Tensor numbers_of(int64_t count, const KeptExamples& keep, bool kept) {
  if (!keep) return torch::arange(count, torch::kLong);
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < count; ++i) {
    if ((*keep)[static_cast<size_t>(i)] == kept) numbers.push_back(i);
  }
  return torch::tensor(numbers, torch::kLong);
}

/// The spec of batches: known, so that no example is read for it.
data::ElementSpec spec_of_batches(const DataForm& form, const IndexedExamples& examples) {
  const auto shape = [](std::vector<int64_t> sizes) {
    return data::PartialShape::of(sizes).with_leading(std::nullopt);
  };
  data::ElementSpec spec = data::detail::static_spec<Example>();
  spec.leaves->at(0).dtype = examples.input_dtype;
  spec.leaves->at(0).shape = shape(form.input_shape);
  spec.leaves->at(1).dtype = examples.target_dtype;
  spec.leaves->at(1).shape = shape(form.task == Task::Sequence  ? form.input_shape
                                   : form.task == Task::Numbers ? std::vector<int64_t>{form.num_outputs}
                                                                : std::vector<int64_t>{});
  return spec;
}

}  // namespace

OpenedData indexed_data(DataForm form, IndexedExamples examples) {
  const int64_t count = examples.count;
  const data::MapOptions options{
      .num_threads = examples.num_threads, .spec = spec_of_batches(form, examples), .read_only = true};
  const auto part = [count, options, read = std::move(examples.read)](const KeptExamples& keep,
                                                                      bool kept) -> ExamplePart {
    const at::Tensor numbers = numbers_of(count, keep, kept);
    return {numbers.size(0), [=](int64_t batch_size, int64_t shuffle) -> ExampleDataset {
              data::Dataset<at::Tensor> all = data::from_tensors(numbers);
              if (shuffle > 0) {
                // The generator of a function of `map` has another seed in each epoch.
                all =
                    all.map([](const at::Tensor& rows) { return rows.index_select(0, torch::randperm(rows.size(0))); },
                            {.spec = all.element_spec(), .read_only = true});
              }
              const int64_t batches = (numbers.size(0) + batch_size - 1) / batch_size;
              return data::independent_rows(all.rebatch(batch_size).assert_cardinality(batches).map(read, options));
            }};
  };
  return {.form = std::move(form), .count = count, .part = part};
}

OpenedData tensors_as_data(DataForm form, at::Tensor inputs, at::Tensor targets) {
  IndexedExamples examples{
      .count = inputs.size(0), .input_dtype = inputs.scalar_type(), .target_dtype = targets.scalar_type()};
  examples.read = [inputs = std::move(inputs), targets = std::move(targets)](const at::Tensor& numbers) {
    return Example{inputs.index_select(0, numbers), targets.index_select(0, numbers)};
  };
  return indexed_data(std::move(form), std::move(examples));
}

}  // namespace lockstep::tools
