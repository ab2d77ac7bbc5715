#include <algorithm>
#include <chrono>
#include <deque>
#include <exception>
#include <set>
#include <sstream>
#include <thread>

#include <ATen/ThreadLocalState.h>

#include "lockstep/base/bounded_queue.h"
#include "lockstep/base/error.h"
#include "lockstep/base/progress/progress.h"
#include "lockstep/base/trace/trace_thread.h"
#include "lockstep/comm/diagnostics/activity.h"
#include "lockstep/data/element/mapped_buffers.h"
#include "lockstep/data/transforms/sound_skip.h"
#include "lockstep/device/host_copier.h"
#include "lockstep/device/placement.h"
#include "lockstep/device/thread_share.h"
#include "lockstep/device/upload.h"
#include "lockstep/strategy/context_frame.h"
#include "lockstep/strategy/input/distributed_input.h"
#include "lockstep/strategy/input/step_reader.h"
#include "lockstep/strategy/run_replicas.h"
#include "lockstep/strategy/strategy_impl.h"
#include "lockstep/strategy/workers.h"
#include "lockstep/xla/tensor/lazy_storage.h"

namespace lockstep::detail {
namespace {

/// A step whose uploads are in flight.
struct UploadedStep {
  Step step;
  std::vector<std::optional<c10::Event>> ready;
};

bool has_gpu(const std::vector<c10::Device>& devices) {
  return std::any_of(devices.begin(), devices.end(), [](const c10::Device& device) { return device.is_cuda(); });
}

bool has_accelerator(const std::vector<c10::Device>& devices) {
  return std::any_of(devices.begin(), devices.end(), [](const c10::Device& device) { return !device.is_cpu(); });
}

/// Starts to copy a tensor to its replica's device. On XLA devices LibTorch's own copy would trace operations, which
/// belong to the thread of the replica.
at::Tensor uploaded(const at::Tensor& tensor, Uploader& uploader) {
  const bool is_plain = tensor.defined() && tensor.is_cpu() && tensor.layout() == at::kStrided;
  if (uploader.device().type() != c10::DeviceType::XLA || !is_plain || tensor.requires_grad()) {
    return uploader.upload(tensor);
  }
  xla::XlaDevice& device = xla::device_at(uploader.device().index());
  return xla::wrap(xla::upload(tensor, device), device);
}

/// Returns the devices of the replicas' batches.
std::vector<c10::Device> devices_of(const DistributedInput& input) {
  std::vector<c10::Device> devices;
  for (const InputPipeline& pipeline : input.pipelines) {
    devices.insert(devices.end(), pipeline.devices.begin(), pipeline.devices.end());
  }
  return devices;
}

/// Returns what copies the batches of GPUs on the host; null where there are none.
std::shared_ptr<HostCopier> make_copier(const DistributedInput& input) {
  const std::vector<c10::Device> devices = devices_of(input);
  std::set<c10::DeviceIndex> gpus;
  for (const c10::Device device : devices) {
    if (device.is_cuda()) gpus.insert(device.index());
  }
  if (gpus.empty()) return nullptr;
  const Workers* workers = input.strategy->workers();
  const int processes = workers == nullptr ? 1 : workers->sharing_cores();
  return std::make_shared<HostCopier>(HostCopier::threads_for(static_cast<int>(gpus.size()), processes));
}

/// Returns how many steps are prefetched: none of datasets that are on their devices.
int64_t buffer_size_of(const InputOptions& options) {
  return options.place_dataset_on_device ? 0 : options.per_replica_buffer_size;
}

/// After this many steps without a complete one, EmptyBatch::Drop gives up: the dataset may have no end.
constexpr int64_t kMostDropped = 1000;

/// What workers tell each other at every step: whether there are data, whether a call has thrown, and whether a cache
/// holds other elements than those of the restored position.
constexpr uint8_t kHasData = 1;
constexpr uint8_t kHasFailed = 2;
constexpr uint8_t kHasOtherCache = 4;

/// Throws inside a replica: one replica cannot take the elements of all.
void check_can_get_next(const StrategyImpl& strategy) {
  const ContextFrame* frame = current_frame();
  if (frame == nullptr || frame->strategy->is_default() || strategy.is_default()) return;
  if (frame->strategy != &strategy) check_cross_replica(strategy, "get_next");
  LOCKSTEP_CHECK_VALUE(frame->replica < 0 || current_position().kind == PositionKind::Update,
                       "[get_next] must be called from outside of the replicas, but was called inside replica ",
                       frame->replica, "; pass the element to them: strategy.run(fn, iterator.get_next())");
}

}  // namespace

/// Reads steps and starts their uploads. For accelerators it prefetches on a thread of its own. For replicas on the CPU
/// it does so only if reads are slow, since that thread takes a core. Without a buffer it reads on the calling thread.
class StepIterator::Feeder {
 public:
  Feeder(const DistributedInput& input, const data::Iteration& iteration)
      : buffer_size_(buffer_size_of(input.options)),
        repeats_(input.options.empty == EmptyBatch::Repeat),
        repeated_(input.num_workers > 1) {
    const std::vector<c10::Device> devices = devices_of(input);
    // First: page-locked memory belongs to the context of a GPU, and uploaders make those of their GPUs.
    for (const c10::Device device : devices) uploaders_.emplace_back(device, iteration.copier);
    for (const InputPipeline& pipeline : input.pipelines) readers_.emplace_back(pipeline, iteration);
    reads_here_ = buffer_size_ == 0 || !has_accelerator(devices);
  }

  ~Feeder() {
    if (!thread_.joinable()) return;
    queue_->close();
    thread_.join();
  }

  /// Before the first `next`: skips steps that have been read before.
  int64_t skip(int64_t count) {
    const data::detail::SkipScope scope(data::detail::Skipped::Sound);
    int64_t skipped = 0;
    for (StepReader& reader : readers_) skipped = std::max(skipped, reader.skip(count));
    return skipped;
  }

  /// Reads a step on the calling thread, before the first `next`.
  Step read_ahead_of_skip() { return used(read()); }

  /// Returns the next step; at and after the end of this worker's data an empty one, or one of repeated batches.
  Step next() {
    if (buffer_size_ == 0) return used(read());
    if (reads_here_) return read_here();
    if (!thread_.joinable()) start();
    UploadedStep step;
    if (take(step)) return used(std::move(step));
    // The thread has ended.
    if (repeats_) return used(read());
    step.step.elements.resize(uploaders_.size());
    return used(std::move(step));
  }

 private:
  /// A thread is not worth a core if reads take less time than this on average. One slow read has little weight: the
  /// first one of an epoch fills the buffers of shuffles.
  static constexpr double kSlowSeconds = 300e-6;
  static constexpr double kLongestCounted = 4 * kSlowSeconds;
  static constexpr double kWeightOfOne = 0.1;

  Step read_here() {
    const auto begin = std::chrono::steady_clock::now();
    UploadedStep step = read();
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
    average_seconds_ += kWeightOfOne * (std::min(time.count(), kLongestCounted) - average_seconds_);
    reads_here_ = average_seconds_ < kSlowSeconds;
    return used(std::move(step));
  }

  void start() {
    queue_.emplace(static_cast<size_t>(buffer_size_));
    thread_ = std::thread([this, caller = at::ThreadLocalState()] {
      const at::ThreadLocalStateGuard state(caller);
      const ThreadShare share(1);
      trace::set_background_thread("input");
      while (push_next()) {
      }
      queue_->finish();
    });
  }

  bool take(UploadedStep& step) {
    const trace::Span span(trace::Phase::Input, "wait for input");
    return queue_->pop(step);
  }

  bool push_next() {
    UploadedStep step;
    try {
      step = read();
    } catch (...) {
      return queue_->push_exception(std::current_exception());
    }
    return step.step.has_data() && queue_->push(std::move(step));
  }

  UploadedStep read() {
    const trace::Span span(trace::Phase::Input, "read");
    UploadedStep result;
    {
      // Hides the placement of a replica. A dataset that is placed on a device, and a scope of the user, still count.
      const Placement on_the_host(std::nullopt);
      for (StepReader& reader : readers_) reader.prepare();  // all of them before any `read`: a reader may throw
      for (StepReader& reader : readers_) reader.read(result.step);
      if (repeats_) repeated_.fill(result.step);
    }
    const NoPlacement for_staging;
    for (size_t replica = 0; replica < uploaders_.size(); ++replica) {
      if (auto& element = result.step.elements[replica]) upload(*element, uploaders_[replica]);
      result.ready.push_back(uploaders_[replica].ready());
    }
    return result;
  }

  static void upload(data::Element& element, Uploader& uploader) {
    for (data::Leaf& leaf : element.leaves) {
      if (leaf.as<data::Row>() != nullptr) {
        const at::Tensor borrowed = data::detail::to_tensor(leaf);
        at::Tensor on_device = uploaded(borrowed, uploader);
        if (data::detail::any_bus_error()) data::detail::check_read(leaf);
        // Replicas may write to their batches: on the CPU they get memory of their own.
        leaf = on_device.is_same(borrowed) ? data::detail::take_tensor(leaf) : std::move(on_device);
      } else if (auto* tensor = leaf.as<at::Tensor>()) {
        *tensor = uploaded(*tensor, uploader);
      }
    }
  }

  static Step used(UploadedStep uploaded) {
    for (size_t replica = 0; replica < uploaded.ready.size(); ++replica) {
      auto& element = uploaded.step.elements[replica];
      if (!element || !uploaded.ready[replica]) continue;
      for (data::Leaf& leaf : element->leaves) {
        if (const auto* tensor = leaf.as<at::Tensor>()) Uploader::use(*tensor, uploaded.ready[replica]);
      }
    }
    return std::move(uploaded.step);
  }

  int64_t buffer_size_;
  /// EmptyBatch::Repeat.
  bool repeats_;
  RepeatedBatches repeated_;
  /// Whether the calling thread reads.
  bool reads_here_ = true;
  double average_seconds_ = 0;
  std::vector<StepReader> readers_;
  std::deque<Uploader> uploaders_;
  std::optional<BoundedQueue<UploadedStep>> queue_;
  std::thread thread_;
};

StepIterator::StepIterator(std::shared_ptr<const DistributedInput> input, uint64_t epoch)
    : input_(std::move(input)),
      empty_batches_(std::make_unique<EmptyBatches>(input_->pipelines.front().node, devices_of(*input_))) {
  start(epoch);
}

void StepIterator::start(uint64_t epoch) {
  iteration_ = data::detail::tracked({.epoch = epoch,
                                      .pin_memory = has_gpu(devices_of(*input_)),
                                      .copier = make_copier(*input_),
                                      .seed = input_->strategy->seed_of_first_worker()});
  feeder_ = std::make_unique<Feeder>(*input_, iteration_);
  steps_ = failed_ = calls_at_failure_ = 0;
  ended_ = delivered_ = any_has_failed_ = has_other_cache_ = false;
  mapped_.clear();
}

StepIterator::~StepIterator() = default;
StepIterator::StepIterator(StepIterator&&) noexcept = default;
StepIterator& StepIterator::operator=(StepIterator&&) noexcept = default;

bool StepIterator::next(std::vector<data::Element>& elements) {
  const trace::Span span(trace::Phase::Input, "get_next");
  check_can_get_next(*input_->strategy);
  data::detail::check_mapped(mapped_);
  if (has_other_cache_) refuse_cache();
  while (!ended_) {
    Step step = read_step();
    const bool has_other_cache = iteration_.seed_use->is_other_than_expected();
    const auto flags = static_cast<uint8_t>((step.has_data() ? kHasData : 0) | (failed_ > 0 ? kHasFailed : 0) |
                                            (has_other_cache ? kHasOtherCache : 0));
    const uint8_t of_any = of_any_worker(flags);
    has_other_cache_ = (of_any & kHasOtherCache) != 0;
    if (has_other_cache_) refuse_cache();
    any_has_failed_ = any_has_failed_ || (of_any & kHasFailed) != 0;
    ended_ = (of_any & kHasData) == 0;
    if (ended_) break;
    ++steps_;
    if (!complete(step)) continue;
    elements.clear();
    for (auto& element : step.elements) {
      data::detail::add_mapped(*element, mapped_);
      elements.push_back(*std::move(element));
    }
    delivered_ = true;
    return true;
  }
  check_delivered();
  return false;
}

Step StepIterator::read_step() {
  const comm::ActivityScope input(comm::Activity::Input);
  try {
    return feeder_->next();
  } catch (...) {
    ++failed_;
    calls_at_failure_ = steps_ + failed_;
    throw;
  }
}

uint8_t StepIterator::of_any_worker(uint8_t mine) const { return input_->any_worker ? input_->any_worker(mine) : mine; }

// On all workers, at every later call, too: a worker that ends alone would be out of step with the others.
void StepIterator::refuse_cache() {
  iteration_.seed_use->check();
  LOCKSTEP_THROW(c10::ValueError,
                 "[restore] the cache of another worker holds other elements than when the position was taken; see the "
                 "error of that worker, and start the epoch anew on all workers");
}

bool StepIterator::complete(Step& step) {
  switch (input_->options.empty) {
    case EmptyBatch::Keep:
      empty_batches_->fill(step);
      return true;
    case EmptyBatch::Repeat:
      // All workers have a batch to repeat from the first step on, or none of them continues.
      LOCKSTEP_CHECK_VALUE(
          delivered_ || !on_any_worker(!step.is_complete()),
          "[get_next] EmptyBatch::Repeat needs a batch to repeat, but a worker has had none: the first "
          "global batch has no rows for it; use larger batches, EmptyBatch::Keep or EmptyBatch::Drop");
      empty_batches_->fill(step);  // where nobody has rows: the global batch itself is empty
      return true;
    case EmptyBatch::Drop:
      break;
  }
  const bool dropped = on_any_worker(!step.is_complete());
  if (dropped && steps_ >= kMostDropped) check_delivered();
  return !dropped;
}

void StepIterator::check_delivered() const {
  LOCKSTEP_CHECK_VALUE(
      delivered_ || steps_ == 0 || input_->options.empty != EmptyBatch::Drop,
      "[get_next] EmptyBatch::Drop has dropped all of ", steps_,
      " steps, because in each of them a replica had no rows: replicas=", input_->strategy->num_replicas_in_sync(),
      "; use global batches of a multiple of the replicas, EmptyBatch::Keep or EmptyBatch::Repeat");
}

InputPosition StepIterator::position(const data::Epochs& epochs) const {
  const uint64_t next_epoch = epochs.next();
  const bool is_of_worker = input_->reads_own_elements && input_->num_workers > 1 && (any_has_failed_ || failed_ > 0);
  return {.epoch = iteration_.epoch,
          .steps = steps_,
          .num_workers = input_->num_workers,
          .pipeline = input_->description,
          .details = {.seed = data::detail::used_seed(iteration_),
                      .cache_seeds = iteration_.seed_use->of_caches(),
                      .failed = failed_,
                      .repeated = calls_at_failure_,
                      .worker = is_of_worker ? std::optional(input_->worker) : std::nullopt,
                      .next_epoch = next_epoch == iteration_.epoch + 1 ? std::nullopt : std::optional(next_epoch)}};
}

// All workers make the same collectives and throw together, whatever fails on one of them.
void StepIterator::restore(const InputPosition& position, data::Epochs& epochs) {
  StepIterator restored(input_, position.epoch);
  std::exception_ptr error;
  try {
    check_position(position, *input_);
    position.details.check_seeds(restored.iteration_);
    restored.any_has_failed_ = position.details.worker.has_value();
    restored.go_to(position);
  } catch (...) {
    error = std::current_exception();
  }
  const bool any_failed = on_any_worker(error != nullptr);
  if (error) std::rethrow_exception(error);
  LOCKSTEP_CHECK_VALUE(!any_failed,
                       "[restore] another worker could not restore its position; see the error of that worker");
  *this = std::move(restored);
  epochs.set_next(position.details.next_epoch.value_or(position.epoch + 1));
}

void StepIterator::go_to(const InputPosition& position) {
  bool has_data = true;
  while (has_data && steps_ + failed_ < position.details.repeated) {
    try {
      has_data = feeder_->read_ahead_of_skip().has_data();
      if (has_data) ++steps_;
    } catch (const std::exception&) {
      ++failed_;
      calls_at_failure_ = steps_ + failed_;
    }
  }
  iteration_.seed_use->check();
  position.details.check_failed(failed_);
  // A batch that may be repeated is read again.
  const bool reads_again = input_->options.empty == EmptyBatch::Repeat && position.steps > steps_;
  const progress::Task task(c10::str("finding step ", position.steps, " of the dataset"));
  steps_ += feeder_->skip(position.steps - steps_ - (reads_again ? 1 : 0));
  if (reads_again && feeder_->next().has_data()) ++steps_;
  iteration_.seed_use->check();
  LOCKSTEP_CHECK_VALUE(steps_ == position.steps || input_->num_workers > 1,
                       "[restore] the position must not be after the end of the dataset: steps=", position.steps,
                       ", dataset has ", steps_);
  steps_ = position.steps;
  delivered_ = position.steps > 0 && input_->options.empty == EmptyBatch::Drop;
}

void check_position(const InputPosition& position, const DistributedInput& input) {
  LOCKSTEP_CHECK_VALUE(
      position.num_workers == input.num_workers || input.order_is_global,
      "[restore] workers that read different files cannot continue with another number of workers: then ",
      position.num_workers, ", now ", input.num_workers,
      "; use AutoShardPolicy::Data for positions that hold for any number of workers");
  LOCKSTEP_CHECK_VALUE(position.pipeline == input.description,
                       "[restore] the position must be of the same dataset: position of ", position.pipeline,
                       ", dataset ", input.description);
  LOCKSTEP_CHECK_VALUE(
      !position.details.worker || *position.details.worker == input.worker,
      "[restore] steps have failed, and the workers read different elements, so that a position is valid only for the "
      "worker that has taken it: taken by worker ",
      *position.details.worker, ", restored by worker ", input.worker,
      "; let each worker save and restore its own position, or use AutoShardPolicy::Data");
}

std::string InputPosition::str() const {
  return c10::str("epoch ", epoch, " step ", steps, " workers ", num_workers, " ", details.str(), "of ", pipeline);
}

InputPosition InputPosition::parse(const std::string& text) {
  std::istringstream in(text);
  std::string epoch_word, step_word, workers_word;
  InputPosition position;
  in >> epoch_word >> position.epoch >> step_word >> position.steps >> workers_word >> position.num_workers;
  position.details = data::PositionDetails::parse(in);
  LOCKSTEP_CHECK_VALUE(
      in && epoch_word == "epoch" && step_word == "step" && workers_word == "workers",
      "[InputPosition::parse] must be \"epoch NUMBER step NUMBER workers NUMBER ... of PIPELINE\": text=\"", text,
      "\"");
  std::getline(in, position.pipeline, '\0');
  return position;
}

}  // namespace lockstep::detail
