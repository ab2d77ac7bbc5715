#include "lockstep/train/runs/step_intervals.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "lockstep/base/host_name.h"
#include "lockstep/device/memory_use.h"
#include "lockstep/strategy/access.h"
#include "lockstep/strategy/strategy_impl.h"
#include "lockstep/train/runs/run_description.h"
#include "lockstep/train/tensorboard/tensorboard_log.h"
#include "lockstep/train/trainer/trainer_impl.h"

namespace lockstep::detail {
namespace {

// Of the numbers of a worker.
constexpr size_t kExamples = 0;
constexpr size_t kProcessMemory = 1;
constexpr size_t kFirstReplica = 2;
// The longest interval, as a part of the training so far: a month at one line a second has less than 20,000 lines.
constexpr double kLongestPart = 1.0 / 2500;

/// The texts of all workers. All workers call it.
std::vector<std::string> of_all_workers(const StrategyImpl& strategy, const std::string& text) {
  if (strategy.num_workers() == 1) return {text};
  const std::string line = text + "\n";
  at::Tensor bytes = at::empty({static_cast<int64_t>(line.size())}, at::kByte);
  std::memcpy(bytes.data_ptr(), line.data(), line.size());
  const at::Tensor all = strategy.worker_group()->all_gather(bytes).contiguous();
  std::vector<std::string> texts(1);
  const auto* letters = static_cast<const char*>(all.data_ptr());
  for (int64_t i = 0; i < all.numel(); ++i) {
    if (letters[i] == '\n') {
      texts.emplace_back();
    } else {
      texts.back() += letters[i];
    }
  }
  texts.pop_back();
  LOCKSTEP_ASSERT(static_cast<int>(texts.size()) == strategy.num_workers(), "texts=", texts.size());
  return texts;
}

int64_t examples_of_step(const Trainer& trainer) {
  int64_t rows = 0;
  for (const std::vector<Batch>& batches : trainer.last_batches()) {
    for (const Batch& batch : batches) rows += batch.rows();
  }
  return rows;
}

RunJson rate_json(const Trainer& trainer) {
  const auto rate = tensorboard::learning_rate_of(trainer);
  return rate ? json_number(rounded(*rate)) : RunJson(nullptr);
}

std::string short_name(const LogicalDevice& device) { return c10::str(device.type, ":", device.index); }

/// -1 where nothing is known.
double amount_of(std::optional<int64_t> bytes) { return bytes ? static_cast<double>(*bytes) : -1; }

RunJson amount_json(double bytes) { return bytes < 0 ? RunJson(nullptr) : RunJson(static_cast<int64_t>(bytes)); }

/// That of the device alone: replicas on CPUs share the memory of the process, and XLA does not tell.
std::optional<int64_t> peak_of(const LogicalDevice& device) {
  return device.type == "GPU" ? take_peak_bytes(device.torch_device) : std::nullopt;
}

}  // namespace

void StepIntervals::begin(const Trainer& trainer) {
  const StrategyImpl& strategy = Access::impl(trainer.strategy());
  RunJson own{{"host", host_name()}, {"devices", RunJson::array()}};
  for (const LogicalDevice& device : strategy.devices()) {
    own["devices"].push_back(short_name(device));
    peak_of(device);  // what was before the training is no part of it
  }
  names_.clear();
  for (const std::string& text : of_all_workers(strategy, json_text(own))) {
    const RunJson json = RunJson::parse(text);
    names_.push_back({json.at("host"), json.at("devices")});
  }
  if (!counting_) counting_ = count_phases();
  seconds_ = 0;
  earlier_seconds_ = 0;
  steps_ = 0;
  examples_ = 0;
  is_first_ = true;
  phases_.assign(strategy.devices().size(), std::vector<double>(phase_names().size(), 0));
  is_running_ = false;
  resume();
}

void StepIntervals::resume() {
  if (is_running_) return;
  is_running_ = true;
  resumed_at_ = Clock::now();
  phases_at_resume_ = phase_seconds(phases_.size());
}

void StepIntervals::pause() {
  if (!is_running_) return;
  is_running_ = false;
  seconds_ += std::chrono::duration<double>(Clock::now() - resumed_at_).count();
  const std::vector<std::vector<double>> now = phase_seconds(phases_.size());
  for (size_t r = 0; r < phases_.size(); ++r) {
    for (size_t p = 0; p < phases_[r].size(); ++p) phases_[r][p] += now[r][p] - phases_at_resume_[r][p];
  }
}

double StepIntervals::seconds() const {
  return seconds_ + (is_running_ ? std::chrono::duration<double>(Clock::now() - resumed_at_).count() : 0);
}

double StepIntervals::wanted_seconds() const {
  return std::max(wanted_seconds_, (earlier_seconds_ + seconds()) * kLongestPart);
}

StepIntervals::Result StepIntervals::end_step(Trainer& trainer) {
  resume();
  ++steps_;
  epoch_ = trainer.epoch();
  examples_ += examples_of_step(trainer);
  const bool is_alone = names_.size() == 1;
  const bool has_ended = is_alone ? seconds() >= wanted_seconds() : TrainerSteps::ends_interval(trainer);
  const double step_seconds = seconds() / static_cast<double>(steps_);
  const Result result = is_first_ || has_ended ? end_interval(trainer) : Result{};
  const bool ends_next = seconds() + step_seconds >= wanted_seconds();
  if (!is_alone && ends_next && trainer.is_chief()) TrainerSteps::ask_interval_end(trainer);
  return result;
}

StepIntervals::Result StepIntervals::finish(const Trainer& trainer) {
  return steps_ > 0 ? end_interval(trainer) : Result{};
}

at::Tensor StepIntervals::own_numbers(const Trainer& trainer) const {
  const auto& devices = Access::impl(trainer.strategy()).devices();
  std::vector<double> numbers(kFirstReplica);
  numbers[kExamples] = static_cast<double>(examples_);
  numbers[kProcessMemory] = amount_of(resident_bytes());
  std::map<std::string, double> peaks;  // reading a peak begins the next one, and replicas may share a GPU
  for (size_t r = 0; r < devices.size(); ++r) {
    const auto [peak, is_new] = peaks.try_emplace(c10::str(devices[r].torch_device), -1);
    if (is_new) peak->second = amount_of(peak_of(devices[r]));
    numbers.push_back(peak->second);
    numbers.insert(numbers.end(), phases_[r].begin(), phases_[r].end());
  }
  return at::tensor(numbers, at::kDouble).view({1, -1});
}

RunJson StepIntervals::replica_json(const double* numbers, const WorkerNames& names, size_t worker,
                                    size_t replica) const {
  RunJson json{{"replica", worker * names.devices.size() + replica}, {"device", names.devices[replica]}};
  for (size_t p = 0; p < phase_names().size(); ++p) json[phase_names()[p]] = rounded(numbers[1 + p]);
  json["memory"] = amount_json(numbers[0]);
  return json;
}

StepIntervals::Result StepIntervals::end_interval(const Trainer& trainer) {
  const double loss = trainer.step_loss();  // waits for the devices: their time belongs to this interval
  pause();
  const StrategyImpl& strategy = Access::impl(trainer.strategy());
  at::Tensor numbers = own_numbers(trainer);
  if (strategy.num_workers() > 1) numbers = strategy.worker_group()->all_gather(numbers).contiguous();
  const auto row = [&](size_t worker) {
    return numbers.data_ptr<double>() + static_cast<int64_t>(worker) * numbers.size(1);
  };
  Result result{.ended = true, .loss = loss};
  if (trainer.is_chief()) {
    double examples = 0;
    RunJson workers = RunJson::array();
    for (size_t w = 0; w < names_.size(); ++w) {
      examples += row(w)[kExamples];
      RunJson replicas = RunJson::array();
      for (size_t r = 0; r < names_[w].devices.size(); ++r) {
        const double* const of_replica = row(w) + kFirstReplica + r * (1 + phase_names().size());
        replicas.push_back(replica_json(of_replica, names_[w], w, r));
      }
      workers.push_back({{"worker", w},
                         {"host", names_[w].host},
                         {"memory", amount_json(row(w)[kProcessMemory])},
                         {"replicas", std::move(replicas)}});
    }
    result.line = RunJson{{"step", trainer.step()},
                          {"epoch", epoch_},
                          {"time", unix_time()},
                          {"seconds", rounded(seconds_)},
                          {"steps", steps_},
                          {"examples", static_cast<int64_t>(examples)},
                          {"loss", json_number(rounded(loss))},
                          {"lr", rate_json(trainer)},
                          {"workers", std::move(workers)}};
  }
  is_first_ = false;
  earlier_seconds_ += seconds_;
  seconds_ = 0;
  steps_ = 0;
  examples_ = 0;
  for (auto& phases : phases_) std::fill(phases.begin(), phases.end(), 0);
  resume();
  return result;
}

RunJson StepIntervals::devices() const {
  RunJson devices = RunJson::array();
  for (const WorkerNames& worker : names_) {
    for (const std::string& device : worker.devices) devices.push_back(device);
  }
  return devices;
}

}  // namespace lockstep::detail
