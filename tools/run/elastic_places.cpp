#include "tools/run/elastic_places.h"

#include <algorithm>

namespace lockstep::tools {
namespace {

/// The launcher of places that belong to nobody.
constexpr uint64_t kNoLauncher = ~uint64_t{0};

bool is_free_place(const ElasticPlace& place) { return !place.worker && !place.start_at && !place.is_closed; }

}  // namespace

void ElasticPlaces::offer(uint64_t launcher, int count) {
  for (ElasticPlace& place : places_) {
    if (place.launcher != launcher || place.is_closed) continue;
    if (count > 0) {
      --count;
    } else {
      place.is_closed = true;
      place.start_at.reset();
    }
  }
  for (ElasticPlace& place : places_) {
    if (count <= 0 || place.launcher != kNoLauncher) continue;
    place = {place.index, launcher};
    --count;
  }
  for (; count > 0; --count) places_.push_back({static_cast<int>(places_.size()), launcher});
}

void ElasticPlaces::forget(uint64_t launcher) {
  for (ElasticPlace& place : places_) {
    if (place.launcher != launcher || place.worker) continue;
    place = {place.index, kNoLauncher};
    place.is_closed = true;
  }
}

void ElasticPlaces::close_all() {
  for (ElasticPlace& place : places_) {
    place.is_closed = true;
    place.start_at.reset();
  }
}

ElasticPlace* ElasticPlaces::find_worker(uint64_t worker) {
  const auto found =
      std::find_if(places_.begin(), places_.end(), [&](const ElasticPlace& place) { return place.worker == worker; });
  return found == places_.end() ? nullptr : &*found;
}

std::vector<uint64_t> ElasticPlaces::workers_of(uint64_t launcher) const {
  std::vector<uint64_t> workers;
  for (const ElasticPlace& place : places_) {
    if (place.launcher == launcher && place.worker) workers.push_back(*place.worker);
  }
  return workers;
}

ElasticPlace* ElasticPlaces::next_to_start(int most, Time now) {
  for (ElasticPlace& place : places_) {
    if (place.start_at && now >= *place.start_at) return &place;
  }
  if (num_running() + num_scheduled() >= most) return nullptr;
  const auto free = std::find_if(places_.begin(), places_.end(), is_free_place);
  return free == places_.end() ? nullptr : &*free;
}

ElasticPlaces::Time ElasticPlaces::next_start(Time otherwise) const {
  for (const ElasticPlace& place : places_) {
    if (place.start_at) otherwise = std::min(otherwise, *place.start_at);
  }
  return otherwise;
}

int ElasticPlaces::num_open(uint64_t launcher) const {
  return static_cast<int>(std::count_if(places_.begin(), places_.end(), [&](const ElasticPlace& place) {
    return place.launcher == launcher && !place.is_closed;
  }));
}

int ElasticPlaces::num_running() const {
  return static_cast<int>(std::count_if(places_.begin(), places_.end(),
                                        [](const ElasticPlace& place) { return place.worker.has_value(); }));
}

int ElasticPlaces::num_scheduled() const {
  return static_cast<int>(std::count_if(places_.begin(), places_.end(),
                                        [](const ElasticPlace& place) { return place.start_at.has_value(); }));
}

int ElasticPlaces::num_possible() const {
  return num_running() + num_scheduled() +
         static_cast<int>(std::count_if(places_.begin(), places_.end(), is_free_place));
}

}  // namespace lockstep::tools
