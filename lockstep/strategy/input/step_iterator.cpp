#include <algorithm>
#include <exception>
#include <set>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/progress/progress.h"
#include "lockstep/base/trace/trace.h"
#include "lockstep/comm/diagnostics/activity.h"
#include "lockstep/data/element/mapped_buffers.h"
#include "lockstep/device/host_copier.h"
#include "lockstep/strategy/context_frame.h"
#include "lockstep/strategy/input/distributed_input.h"
#include "lockstep/strategy/input/step_feeder.h"
#include "lockstep/strategy/input/step_reader.h"
#include "lockstep/strategy/run_replicas.h"
#include "lockstep/strategy/strategy_impl.h"
#include "lockstep/strategy/workers.h"

namespace lockstep::detail {
namespace {

bool has_gpu(const std::vector<c10::Device>& devices) {
  return std::any_of(devices.begin(), devices.end(), [](const c10::Device& device) { return device.is_cuda(); });
}

/// Returns what copies the batches of GPUs on the host; null where there are none.
std::shared_ptr<HostCopier> make_copier(const DistributedInput& input) {
  const std::vector<c10::Device> devices = input.devices();
  std::set<c10::DeviceIndex> gpus;
  for (const c10::Device device : devices) {
    if (device.is_cuda()) gpus.insert(device.index());
  }
  if (gpus.empty()) return nullptr;
  const Workers* workers = input.strategy->workers();
  const int processes = workers == nullptr ? 1 : workers->sharing_cores();
  return std::make_shared<HostCopier>(HostCopier::threads_for(static_cast<int>(gpus.size()), processes));
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

StepIterator::StepIterator(std::shared_ptr<const DistributedInput> input, uint64_t epoch)
    : input_(std::move(input)),
      empty_batches_(std::make_unique<EmptyBatches>(input_->pipelines.front().node, input_->devices())) {
  start(epoch);
}

void StepIterator::start(uint64_t epoch) {
  iteration_ = data::detail::tracked({.epoch = epoch,
                                      .pin_memory = has_gpu(input_->devices()),
                                      .copier = make_copier(*input_),
                                      .seed = input_->strategy->seed_of_first_worker()});
  feeder_ = std::make_unique<StepFeeder>(*input_, iteration_);
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
