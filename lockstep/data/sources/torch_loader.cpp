#include <map>
#include <mutex>

#include <ATen/ATen.h>

#include "lockstep/data/function_random.h"
#include "lockstep/data/torch_dataset.h"

namespace lockstep::data::detail {
namespace {

/// Which iteration reads a loader. All datasets of one loader share it.
struct LoaderTurn {
  std::mutex mutex;
  uint64_t iteration = 0;
};

std::shared_ptr<LoaderTurn> turn_of(const void* loader) {
  static std::mutex mutex;
  static std::map<const void*, std::weak_ptr<LoaderTurn>> turns;
  const std::lock_guard<std::mutex> lock(mutex);
  std::erase_if(turns, [](const auto& entry) { return entry.second.expired(); });
  std::shared_ptr<LoaderTurn> turn = turns[loader].lock();
  if (!turn) turns[loader] = turn = std::make_shared<LoaderTurn>();
  return turn;
}

/// Starts the loader with the first `next`: an iterator that is never read leaves the one before it alone.
class TorchLoaderIterator final : public NodeIterator {
 public:
  TorchLoaderIterator(std::shared_ptr<TorchSource> source, std::shared_ptr<LoaderTurn> turn, FunctionRandom random)
      : source_(std::move(source)), turn_(std::move(turn)), random_(std::move(random)) {}

  bool next(Element& element) override {
    if (ended_) return false;
    const std::lock_guard<std::mutex> lock(turn_->mutex);
    // What the sampler draws is the same on all workers, and when a position is restored.
    ended_ = !random_(draws_++, [&] { return read(element); });
    return !ended_;
  }

 private:
  bool read(Element& element) {
    if (iteration_ == 0) {
      source_->start();
      iteration_ = ++turn_->iteration;
    }
    LOCKSTEP_CHECK_VALUE(iteration_ == turn_->iteration,
                         "[from_torch] a loader has one iterator at a time, and another one has started since: end "
                         "this loop first, or make a second loader");
    return source_->next(element);
  }

  std::shared_ptr<TorchSource> source_;
  std::shared_ptr<LoaderTurn> turn_;
  FunctionRandom random_;
  int64_t draws_ = 0;
  uint64_t iteration_ = 0;
  bool ended_ = false;
};

class TorchLoaderNode final : public Node {
 public:
  TorchLoaderNode(std::shared_ptr<TorchSource> source, const void* loader, ElementSpec spec, int64_t batch_size)
      : Node({}), source_(std::move(source)), turn_(turn_of(loader)), spec_(std::move(spec)), batch_size_(batch_size) {}

  std::string name() const override { return c10::str("from_torch(batch_size ", batch_size_, ")"); }
  Role role() const override { return Role::Source; }
  NodePtr with_inputs(std::vector<NodePtr>) const override { return shared_from_this(); }
  std::unique_ptr<NodeIterator> iterator(const Iteration& iteration) const override {
    return std::make_unique<TorchLoaderIterator>(source_, turn_, FunctionRandom(depth(), iteration));
  }
  ElementSpec spec() const override { return spec_; }
  Cardinality cardinality() const override { return Cardinality::unknown(); }
  std::optional<int64_t> batch_size() const override { return batch_size_; }
  bool is_replayable() const override { return false; }

 private:
  std::shared_ptr<TorchSource> source_;
  std::shared_ptr<LoaderTurn> turn_;
  ElementSpec spec_;
  int64_t batch_size_;
};

}  // namespace

TorchSource::~TorchSource() = default;

NodePtr make_torch_loader(std::shared_ptr<TorchSource> source, const void* loader, ElementSpec spec,
                          int64_t batch_size) {
  return make_node<TorchLoaderNode>(std::move(source), loader, std::move(spec), batch_size);
}

at::Tensor stack_examples(const std::vector<at::Tensor>& parts) {
  LOCKSTEP_CHECK_VALUE(!parts.empty(), "[from_torch] a batch must have at least one example");
  for (const at::Tensor& part : parts) {
    LOCKSTEP_CHECK_VALUE(part.sizes() == parts[0].sizes() && part.dtype() == parts[0].dtype(),
                         "[from_torch] the examples of a batch are stacked, so they must have one shape and dtype: ",
                         parts[0].sizes(), " ", parts[0].dtype(), " and ", part.sizes(), " ", part.dtype(),
                         "; pad them in dataset.map(torch::data::transforms::Collate<...>(...))");
  }
  return at::stack(parts);
}

std::vector<size_t> to_indices(const at::Tensor& numbers) {
  const auto* first = numbers.data_ptr<int64_t>();
  return {first, first + numbers.numel()};
}

void check_batch_options(const TorchBatchOptions& options) {
  LOCKSTEP_CHECK_VALUE(options.batch_size >= 1,
                       "[from_torch] a dataset of torch::data is batched here, so the size of global batches must be "
                       "given: batch_size=",
                       options.batch_size, "; write {.batch_size = 64}");
}

}  // namespace lockstep::data::detail
