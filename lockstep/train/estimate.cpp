#include "lockstep/train/estimate.h"

#include <algorithm>
#include <array>
#include <exception>
#include <initializer_list>
#include <iomanip>
#include <limits>
#include <sstream>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/train/memory_meter.h"
#include "lockstep/train/memory_of_device.h"

namespace lockstep {
namespace {

/// The most rows that are measured, and half of them. Normalizations need more than one row.
constexpr int64_t kMeasuredRows = 8;
constexpr int64_t kFewRows = 4;
/// Above this share of a place, other programs and fragments of the allocator may take the rest.
constexpr double kTight = 0.9;

int64_t bytes_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return 0;
  if (tensor.is_sparse()) return bytes_of(tensor._values()) + bytes_of(tensor._indices());
  return static_cast<int64_t>(tensor.nbytes());
}

int64_t bytes_of(const std::vector<at::Tensor>& tensors) {
  int64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += bytes_of(tensor);
  return bytes;
}

/// What one step took, above what it began with.
struct StepLevels {
  int64_t rows = 0;
  int64_t input = 0;
  int64_t activations = 0;
  int64_t gradients = 0;
  std::vector<int64_t> passes{};
  std::vector<int64_t> update{};
};

void drop_gradients(const std::vector<at::Tensor>& parameters) {
  for (const at::Tensor& parameter : parameters) parameter.mutable_grad().reset();
}

StepLevels make_step(const EstimatedStep& step, int64_t rows, torch::optim::Optimizer& optimizer,
                     detail::MemoryMeter& meter) {
  StepLevels levels{.rows = rows};
  const int64_t begin = meter.used();
  meter.take_levels();
  {
    const std::vector<at::Tensor> batch = step.make_batch(rows);
    levels.input = meter.used() - begin;
    const at::Tensor loss = step.loss(batch);
    LOCKSTEP_CHECK_VALUE(loss.defined() && loss.numel() == 1 && loss.requires_grad(),
                         "[estimate_memory] the loss must be one number that depends on the parameters: elements=",
                         loss.defined() ? loss.numel() : 0);
    levels.activations = meter.used() - begin - levels.input;
    loss.backward();
    levels.passes = meter.take_levels();
  }
  for (const at::Tensor& parameter : step.parameters) levels.gradients += bytes_of(parameter.grad());
  meter.take_levels();
  optimizer.step();
  levels.update = meter.take_levels();
  drop_gradients(step.parameters);
  for (std::vector<int64_t>* each : {&levels.passes, &levels.update}) {
    for (int64_t& level : *each) level -= begin;
  }
  return levels;
}

constexpr int64_t kMostBytes = std::numeric_limits<int64_t>::max();

int64_t sum_of(std::initializer_list<int64_t> numbers) {
  int64_t sum = 0;
  for (const int64_t each : numbers) {
    if (__builtin_add_overflow(sum, each, &sum)) return kMostBytes;
  }
  return sum;
}

int64_t times(int64_t count, int64_t bytes) {
  int64_t product = 0;
  return __builtin_mul_overflow(count, bytes, &product) ? kMostBytes : product;
}

/// The value of the straight line through two measurements.
int64_t continued(const StepLevels& few, int64_t at_few, const StepLevels& more, int64_t at_more, int64_t rows) {
  const double slope = static_cast<double>(at_more - at_few) / static_cast<double>(more.rows - few.rows);
  const double value = static_cast<double>(at_more) + slope * static_cast<double>(rows - more.rows);
  return value < static_cast<double>(kMostBytes) ? static_cast<int64_t>(std::max(value, 0.0)) : kMostBytes;
}

int64_t highest(const std::vector<int64_t>& levels) {
  return levels.empty() ? 0 : *std::max_element(levels.begin(), levels.end());
}

/// The highest level with `rows` rows. Every allocation has a line of its own, so that the moment of the highest level
/// may be another one than at few rows.
int64_t highest_continued(const StepLevels& few, const StepLevels& more, std::vector<int64_t> StepLevels::*member,
                          int64_t rows) {
  const std::vector<int64_t>& first = few.*member;
  const std::vector<int64_t>& second = more.*member;
  if (first.size() != second.size()) return continued(few, highest(first), more, highest(second), rows);
  int64_t result = 0;
  for (size_t i = 0; i < first.size(); ++i) result = std::max(result, continued(few, first[i], more, second[i], rows));
  return result;
}

void check_step(const EstimatedStep& step, int64_t rows) {
  LOCKSTEP_CHECK_VALUE(rows >= 1, "[estimate_memory] a replica must have at least one row: rows=", rows);
  LOCKSTEP_CHECK_VALUE(step.make_batch && step.loss && step.make_optimizer && !step.parameters.empty(),
                       "[estimate_memory] a step needs parameters, make_batch, loss and make_optimizer: parameters=",
                       step.parameters.size());
}

/// The memory of the step of `count` replicas on CPUs of one machine, which update parameters in small parts. The parts
/// of one replica hold its gradients until the next update; those of several hold sums.
int64_t cpu_steps(const StepMemory& step, int64_t count) {
  return count == 1 ? sum_of({step.passes, step.gradients}) : times(count, std::max(step.passes, step.gradients));
}

/// The state of one of `parts` where the plan divides it.
int64_t divided_state(const StepMemory& step, const TrainingPlan& plan, int64_t parts) {
  return plan.shard == Shard::None ? step.optimizer_state : (step.optimizer_state + parts - 1) / parts;
}

PlaceMemory on_each_device(const StepMemory& step, const TrainingPlan& plan) {
  return {.name = "each device",
          .parameters = step.parameters,
          .buffers = step.buffers,
          .optimizer_state = divided_state(step, plan, times(plan.workers, plan.replicas)),
          .step = std::max(step.passes, step.update)};
}

/// Replicas on CPUs: they share a machine, and parameters only with central storage.
PlaceMemory on_cpus(const StepMemory& step, const TrainingPlan& plan) {
  const int64_t workers = plan.one_machine ? plan.workers : 1;
  const int64_t replicas = times(workers, plan.replicas);
  const bool is_central = plan.strategy == EstimatedStrategy::Central;
  return {.name = plan.workers > workers ? "the machine of each worker" : "the machine",
          .parameters = is_central ? step.parameters : times(replicas, step.parameters),
          .buffers = times(replicas, step.buffers),
          .optimizer_state = divided_state(step, plan, plan.workers / workers),
          .step = cpu_steps(step, replicas)};
}

/// Central storage with replicas on other devices: the host has parameters, state, and the gradients of all replicas.
std::vector<PlaceMemory> central_with_devices(const StepMemory& step, const TrainingPlan& plan) {
  PlaceMemory device = on_each_device(step, plan);
  device.optimizer_state = 0;
  device.step = step.passes;
  const PlaceMemory host{.name = "the host",
                         .parameters = step.parameters,
                         .optimizer_state = step.optimizer_state,
                         .step = times(plan.replicas, step.gradients)};
  return {device, host};
}

void set_memory(PlaceMemory& place, c10::Device device) {
  const detail::DeviceMemory memory = detail::memory_of_device(device);
  place.available = memory.total;
  place.free = memory.free;
}

/// Makes the steps of measure_step.
void measure(const EstimatedStep& step, int64_t rows, StepMemory& result) {
  const int64_t most = result.measured_rows;
  step.loss(step.make_batch(std::min(rows, kFewRows))).backward();  // libraries take their workspace
  drop_gradients(step.parameters);

  detail::MemoryMeter meter(result.device.type());
  const auto optimizer = step.make_optimizer(step.parameters);
  make_step(step, std::min(rows, kFewRows), *optimizer,
            meter);  // makes the state, and what functions keep from their first call on
  result.optimizer_state = meter.used();
  const StepLevels more = make_step(step, most, *optimizer, meter);
  const StepLevels few = most == rows ? more : make_step(step, kFewRows, *optimizer, meter);
  const auto at_rows = [&](int64_t at_few, int64_t at_more) {
    return most == rows ? at_more : continued(few, at_few, more, at_more, rows);
  };
  result.input = at_rows(few.input, more.input);
  result.activations = at_rows(few.activations, more.activations);
  result.gradients = at_rows(few.gradients, more.gradients);
  result.passes = most == rows ? highest(more.passes) : highest_continued(few, more, &StepLevels::passes, rows);
  result.update = most == rows ? highest(more.update) : highest_continued(few, more, &StepLevels::update, rows);
  result.update = std::max(result.update, result.gradients);
}

}  // namespace

void EstimatedStep::set_module(const torch::nn::Module& module) {
  parameters = module.parameters();
  buffers = module.buffers();
}

StepMemory measure_step(const EstimatedStep& step, int64_t rows) {
  check_step(step, rows);
  StepMemory result;
  result.rows = rows;
  result.device = step.parameters.front().device();
  for (const at::Tensor& parameter : step.parameters) result.num_parameters += parameter.numel();
  result.parameters = bytes_of(step.parameters);
  result.buffers = bytes_of(step.buffers);
  drop_gradients(step.parameters);
  result.measured_rows = std::min(rows, kMeasuredRows);
  try {
    measure(step, rows, result);
  } catch (const std::exception&) {
    if (!detail::is_out_of_memory(std::current_exception())) throw;
    LOCKSTEP_THROW(c10::OutOfMemoryError,
                   "[estimate_memory] the memory is not enough to measure a step: rows=", result.measured_rows,
                   ", parameters=", bytes_text(result.parameters),
                   "; it does not fit: ", error_text(std::current_exception()));
  }
  return result;
}

EstimatedStrategy estimated_strategy(const std::string& name) {
  constexpr std::array kNames{
      std::pair{"one_device", EstimatedStrategy::OneDevice}, std::pair{"mirrored", EstimatedStrategy::Mirrored},
      std::pair{"multi_worker", EstimatedStrategy::MultiWorker}, std::pair{"central", EstimatedStrategy::Central},
      std::pair{"tpu", EstimatedStrategy::TPU}};
  const auto* found = std::find_if(kNames.begin(), kNames.end(), [&](const auto& each) { return name == each.first; });
  LOCKSTEP_CHECK_VALUE(found != kNames.end(),
                       "[estimate_memory] the strategy must be one_device, mirrored, multi_worker, central or tpu: "
                       "strategy=",
                       name);
  return found->second;
}

MemoryEstimate estimate_memory(const StepMemory& step, const TrainingPlan& plan) {
  LOCKSTEP_CHECK_VALUE(plan.replicas >= 1 && plan.workers >= 1,
                       "[estimate_memory] there must be at least one replica and one worker: replicas=", plan.replicas,
                       ", workers=", plan.workers);
  LOCKSTEP_CHECK_VALUE(plan.workers == 1 || plan.strategy == EstimatedStrategy::MultiWorker,
                       "[estimate_memory] several workers need the strategy multi_worker: workers=", plan.workers);
  LOCKSTEP_CHECK_VALUE(plan.replicas == 1 || plan.strategy != EstimatedStrategy::OneDevice,
                       "[estimate_memory] one_device has one replica: replicas=", plan.replicas);
  LOCKSTEP_CHECK_VALUE(
      plan.shard == Shard::None || (plan.shard != Shard::Parameters && plan.strategy != EstimatedStrategy::TPU),
      "[estimate_memory] parameters, and state on TPUs, cannot be divided over replicas; use ",
      "Shard::None, or Shard::State on other devices");
  MemoryEstimate result{.replica = step};
  const bool on_devices = plan.strategy == EstimatedStrategy::TPU || !plan.device.is_cpu();
  if (!on_devices) {
    result.places = {on_cpus(step, plan)};
    set_memory(result.places[0], c10::DeviceType::CPU);
    return result;
  }
  const bool is_central = plan.strategy == EstimatedStrategy::Central;
  result.places = is_central ? central_with_devices(step, plan) : std::vector{on_each_device(step, plan)};
  if (plan.strategy != EstimatedStrategy::TPU) set_memory(result.places[0], plan.device);
  if (is_central) set_memory(result.places[1], c10::DeviceType::CPU);
  return result;
}

MemoryEstimate estimate_memory(const EstimatedStep& step, int64_t rows, const TrainingPlan& plan) {
  return estimate_memory(measure_step(step, rows), plan);
}

int64_t PlaceMemory::total() const { return sum_of({parameters, buffers, optimizer_state, step}); }

bool MemoryEstimate::fits() const {
  return std::all_of(places.begin(), places.end(),
                     [](const PlaceMemory& place) { return place.available == 0 || place.total() <= place.available; });
}

std::string MemoryEstimate::verdict() const {
  std::string text;
  const bool is_least = replica.rows > 0 && replica.measured_rows == 0;
  for (const PlaceMemory& place : places) {
    const auto needed = static_cast<double>(place.total());
    const auto available = static_cast<double>(place.available);
    text += (text.empty() ? "" : "; ") + place.name + (is_least ? " needs at least " : " needs ") +
            bytes_text(place.total());
    if (place.available == 0) {
      text += ", and its memory is not known";
      continue;
    }
    text += " of " + bytes_text(place.available);
    if (place.free > 0) text += ", " + bytes_text(place.free) + " of it free";
    const bool waits_for_others = place.free > 0 && place.total() > place.free;
    text += needed > available            ? ": it does not fit"
            : waits_for_others            ? ": it fits if other processes give memory back"
            : needed > kTight * available ? ": it is tight"
                                          : ": it fits";
  }
  return text;
}

std::string bytes_text(int64_t bytes) {
  constexpr std::array kUnits{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  std::ostringstream text;
  text << std::fixed << std::setprecision(unit == 0 ? 0 : 1) << value << ' ' << kUnits[unit];
  return text.str();
}

}  // namespace lockstep
