#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/api.h"

namespace lockstep::comm::views {

/// What the launcher that issues views wants of one that has joined it.
struct LauncherOrder {
  enum class Kind {
    /// Start worker `worker`, for the `number`-th time at its place; `text` is its name.
    Start,
    /// Send the signal `number` to worker `worker`.
    Signal,
    /// The job has ended with the exit status `number`.
    Finish,
    /// The connection is lost because of `text`.
    Lost,
  };
  Kind kind = Kind::Finish;
  uint64_t worker = 0;
  uint64_t number = 0;
  std::string text{};
};

/// The connection of a launcher that has joined (`lockstep run --join`) to the one that issues views. Not thread-safe.
class LOCKSTEP_API LauncherLink {
 public:
  /// Connects. CollectiveError says why it cannot.
  LauncherLink(const std::string& address, const std::string& token, std::chrono::milliseconds timeout);
  ~LauncherLink();

  /// Offers to run so many workers at a time; replaces the offer before.
  void offer(int places);
  void exited(uint64_t worker, int status, int64_t step);
  /// The highest step of the workers here, for the next heartbeat.
  void set_progress(int64_t step);

  /// Serves until `descriptor` can be read, an order has come, or the time is over; returns the orders.
  std::vector<LauncherOrder> wait(int descriptor, std::chrono::milliseconds limit);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::comm::views
