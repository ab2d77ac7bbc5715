#include "lockstep/xla/engine/run.h"

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"

namespace lockstep::xla {
namespace {

const char* text_of(Run::Reason reason) {
  return reason == Run::Reason::End ? "has returned" : "wants a value that needs all replicas";
}

}  // namespace

Run::Run(std::vector<Place*> places) : places_(std::move(places)), waiting_(places_.size()) {
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

void Run::execute_all() {
  for (size_t replica = 1; replica < places_.size(); ++replica) {
    LOCKSTEP_CHECK_COLLECTIVE(*waiting_[replica] == *waiting_[0],
                              "[run] replicas must read values at the same points: replica 0 ", text_of(*waiting_[0]),
                              ", replica ", replica, " ", text_of(*waiting_[replica]));
  }
  std::vector<Work> works;
  for (Place* place : places_) works.emplace_back(*place);
  execute_together(works);
}

void Run::meet(int replica, Reason reason) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto check_all_there = [&] {
    LOCKSTEP_CHECK_COLLECTIVE(gone_ < 0, "[run] replica ", gone_, " has left while replica ", replica, " ",
                              text_of(reason));
  };
  check_all_there();
  waiting_[replica] = reason;
  const uint64_t round = round_;
  if (++arrived_ == places_.size()) {
    error_ = nullptr;
    try {
      execute_all();
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
                                timeout.count() / 1000, " s for the others: ", arrived_, " of ", places_.size(),
                                " have come; set LOCKSTEP_COLLECTIVE_TIMEOUT to wait longer");
    } else {
      changed_.wait(lock, over);
    }
    if (round_ == round) check_all_there();
  }
  if (error_) std::rethrow_exception(error_);
}

void Run::leave(int replica, std::exception_ptr error) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!error || gone_ >= 0) return;
  gone_ = replica;
  changed_.notify_all();
}

Mesh::Mesh(const std::vector<std::vector<int>>& devices) {
  for (const auto& of_replica : devices) places_.push_back(&place_of(of_replica));
}

std::unique_ptr<Run> Mesh::begin() const {
  for (Place* place : places_) {
    execute_pending(*place);
    place->begin_draws();
  }
  return std::make_unique<Run>(places_);
}

void Mesh::roll_back() const {
  for (Place* place : places_) place->roll_back();
}

}  // namespace lockstep::xla
