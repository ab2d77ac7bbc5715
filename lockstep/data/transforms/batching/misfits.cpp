#include "lockstep/data/transforms/batching/misfits.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::data::detail {

Misfits::Misfits(Fits fits, int64_t capacity) : fits_(fits), majority_(std::min(kMajority, capacity)) {}

void Misfits::batch_grows(int64_t size) {
  if (size < majority_) return;
  for (Held& held : held_) errors_.push_back(std::move(held.message));
  held_.clear();
}

std::vector<Element> Misfits::hold(Element& element, std::string message, int64_t size) {
  if (size >= majority_) {
    errors_.push_back(std::move(message));
    return {};
  }
  held_.push_back({std::move(element), std::move(message)});
  if (size_of_group(held_.back().element) >= majority_) return take_group(held_.back().element);
  if (held_.size() < kMostHeld) return {};
  return decide(size, [](const Element&) { return false; });
}

std::vector<Element> Misfits::decide(int64_t size, const std::function<bool(const Element&)>& is_preferred) {
  const Element* winner = nullptr;
  int64_t most = size;
  for (const Held& held : held_) {
    const int64_t found = size_of_group(held.element);
    if (found < most || (found == most && !is_preferred(held.element))) continue;
    most = found;
    winner = &held.element;
  }
  if (winner != nullptr) return take_group(*winner);
  batch_grows(majority_);
  return {};
}

int64_t Misfits::size_of_group(const Element& member) const {
  return std::count_if(held_.begin(), held_.end(), [&](const Held& held) { return fits_(member, held.element); });
}

std::vector<Element> Misfits::take_group(const Element& member) {
  std::vector<bool> belongs;
  for (const Held& held : held_) belongs.push_back(fits_(member, held.element));
  std::vector<Element> group;
  for (size_t i = 0; i < held_.size(); ++i) {
    if (belongs[i]) {
      group.push_back(std::move(held_[i].element));
    } else {
      errors_.push_back(std::move(held_[i].message));
    }
  }
  held_.clear();
  return group;
}

void Misfits::throw_error() {
  if (errors_.empty()) return;
  const std::string message = std::move(errors_.front());
  errors_.pop_front();
  LOCKSTEP_THROW(c10::ValueError, message);
}

}  // namespace lockstep::data::detail
