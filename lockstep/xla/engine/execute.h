#pragma once

#include <functional>
#include <vector>

#include "lockstep/xla/engine/program.h"
#include "lockstep/xla/tensor/lazy_storage.h"

/// Inside: executing what is pending.
namespace lockstep::xla {

/// What is pending of one place, taken off its list. What is not executed goes back.
class Work {
 public:
  explicit Work(Place& place);
  Work(Work&& other) noexcept;
  Work& operator=(Work&&) = delete;
  ~Work();

  Place& place() const { return *place_; }
  const Pending& pending() const { return pending_; }
  const Trace& trace() const { return trace_; }
  Trace& trace() { return trace_; }
  bool empty() const { return pending_.results.empty(); }

  /// The values have become memory: no storage is pending any more.
  void executed();

 private:
  Place* place_;
  Pending pending_;
  Trace trace_;
};

/// Executes traces that are the same, one for each place, as one program; their results become arguments, which
/// `before_they_do` can look at.
void launch(at::ArrayRef<Trace*> traces, at::ArrayRef<Place*> places,
            const std::function<void(const std::shared_ptr<const Program>&)>& before_they_do = nullptr);

/// Takes result `i` of a replica out of what a program returned for each device.
std::unique_ptr<DeviceData> take_result(std::vector<std::vector<Buffer>>& of_devices, size_t replica, size_t i,
                                        const Place& place, LayoutPtr layout);

/// Executes the work of all replicas as one program. Where only sizes differ, as in a last batch, each replica's part
/// between collectives is a program of its own. Throws a CollectiveError that names the first difference where
/// operations differ.
void execute_together(std::vector<Work>& works);

/// The handles of buffers that a program takes as arguments, for each device: those of the trace, then numbers.
class LaunchArguments {
 public:
  explicit LaunchArguments(int num_partitions) : num_partitions_(num_partitions) {}
  /// Adds the arguments of one replica.
  void add(at::ArrayRef<const Node*> arguments, const std::vector<double>& numbers,
           const std::vector<int64_t>& integers, const Place& place);
  const std::vector<std::vector<void*>>& handles() const { return handles_; }

 private:
  int num_partitions_;
  std::vector<std::vector<void*>> handles_;
  std::vector<Buffer> numbers_;
};

/// Lets others see what is executed: replay.h.
class ExecutionListener {
 public:
  virtual ~ExecutionListener() = default;
  /// Called before results become arguments.
  virtual void on_launch(const Work& work, int replica, const std::shared_ptr<const Program>& program) = 0;
  /// Something was executed for which there is no single program of all replicas.
  virtual void on_apart(const std::string& why) = 0;
};
/// At most one at a time; null for none.
void set_listener(ExecutionListener* listener);
ExecutionListener* listener();

}  // namespace lockstep::xla
