#pragma once

#include <functional>
#include <memory>
#include <thread>

namespace lockstep::comm::job {

/// Functions that are called on every change, one after another, on a thread of their own. Thread-safe.
class Callbacks {
 public:
  Callbacks();
  /// Waits for a function that is running; none is called afterwards.
  ~Callbacks();

  /// Adds a function, and calls it soon where `is_due`. Destroying the handle removes the function and waits while it
  /// runs, except on the thread of the callbacks.
  std::shared_ptr<void> add(std::function<void()> function, bool is_due);
  /// Calls all of them soon.
  void call_all();

 private:
  struct State;
  static void run(State& state);

  // Shared with the handles, which may outlive this.
  std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace lockstep::comm::job
