#include "lockstep/xla/engine/run.h"

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"

namespace lockstep::xla {
Run::Run(std::vector<Place*> places) : places_(std::move(places)) {
  for (size_t replica = 0; replica < places_.size(); ++replica) {
    Place& place = *places_[replica];
    outer_.emplace_back(place.run, place.replica);
    place.run = this;
    place.replica = static_cast<int>(replica);
  }
}

Run::~Run() {
  for (size_t replica = 0; replica < places_.size(); ++replica) {
    std::tie(places_[replica]->run, places_[replica]->replica) = outer_[replica];
  }
}

void Run::finish() {
  std::vector<Work> works;
  for (Place* place : places_) works.emplace_back(*place);
  execute_together(works);
}

void Run::meet(int replica) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto check_all_there = [&] {
    LOCKSTEP_CHECK_COLLECTIVE(gone_ < 0, "[run] replica ", replica, " wants a value that needs all replicas, but ",
                              "replica ", gone_, " has ended; read such values in all of them");
  };
  check_all_there();
  const uint64_t round = round_;
  if (++arrived_ == places_.size()) {
    error_ = nullptr;
    try {
      finish();
    } catch (...) {
      error_ = std::current_exception();
    }
    arrived_ = 0;
    ++round_;
    changed_.notify_all();
  } else {
    const auto timeout = env::seconds("LOCKSTEP_COLLECTIVE_TIMEOUT");
    const auto over = [&] { return round_ != round || gone_ >= 0; };
    if (timeout.count() > 0) {
      LOCKSTEP_CHECK_COLLECTIVE(changed_.wait_for(lock, timeout, over), "[run] replica ", replica, " waited ",
                                timeout.count() / 1000, " s for the others to read a value: ", arrived_, " of ",
                                places_.size(), " have come; set LOCKSTEP_COLLECTIVE_TIMEOUT to wait longer");
    } else {
      changed_.wait(lock, over);
    }
    if (round_ == round) check_all_there();
  }
  if (error_) std::rethrow_exception(error_);
}

void Run::leave(int replica) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (gone_ < 0) gone_ = replica;
  changed_.notify_all();
}

Mesh::Mesh(const std::vector<std::vector<int>>& devices) {
  for (const auto& of_replica : devices) places_.push_back(&place_of(of_replica));
}

std::unique_ptr<Run> Mesh::begin() const {
  for (Place* place : places_) {
    execute_pending(*place);
    place->begin_run();
  }
  return std::make_unique<Run>(places_);
}

void Mesh::roll_back() const {
  for (Place* place : places_) place->roll_back();
}

}  // namespace lockstep::xla
