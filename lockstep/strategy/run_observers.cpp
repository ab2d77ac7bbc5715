#include "lockstep/strategy/run_observers.h"

#include <exception>
#include <utility>

namespace lockstep::detail {

void RunObservers::add(std::weak_ptr<RunObserver> observer) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::erase_if(observers_, [](const std::weak_ptr<RunObserver>& other) { return other.expired(); });
  observers_.push_back(std::move(observer));
}

RunObservers::List RunObservers::alive() {
  const std::lock_guard<std::mutex> lock(mutex_);
  List alive;
  for (const auto& weak : observers_) {
    if (auto observer = weak.lock()) alive.push_back(std::move(observer));
  }
  return alive;
}

RunObservers::List RunObservers::before_run() {
  outside_changes_ = 0;
  uint64_t position = 0;
  List called = alive();
  for (const auto& observer : called) {
    ++position;
    if (const uint64_t changes = observer->before_run(); changes != 0) outside_changes_ ^= changes * (2 * position + 1);
  }
  return called;
}

void RunObservers::after_run() {
  std::exception_ptr error;
  for (const auto& observer : alive()) {
    try {
      observer->after_run();
    } catch (...) {
      if (!error) error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

size_t RunObservers::before_replay() {
  size_t fingerprint = 0;
  for (const auto& observer : before_run()) fingerprint = fingerprint * 1000003 + observer->fingerprint();
  return fingerprint;
}

std::string RunObservers::why_not_captured() {
  for (const auto& observer : alive()) {
    if (std::string why = observer->why_not_captured(); !why.empty()) return why;
  }
  return "";
}

std::vector<at::Tensor> RunObservers::parameters() {
  std::vector<at::Tensor> parameters;
  for (const auto& observer : alive()) observer->list_parameters(parameters);
  return parameters;
}

void RunObservers::begin_recorded_run() {
  for (const auto& observer : alive()) observer->begin_recorded_run();
}

void RunObservers::forget_recorded_run() {
  for (const auto& observer : alive()) observer->forget_recorded_run();
}

std::vector<double> RunObservers::numbers() {
  std::vector<double> numbers;
  for (const auto& observer : alive()) observer->add_numbers(numbers);
  return numbers;
}

void RunObservers::check_replicas() {
  for (const auto& observer : alive()) observer->check_replicas();
}

void RunObservers::count_replay() {
  for (const auto& observer : alive()) observer->count_replay();
}

}  // namespace lockstep::detail
