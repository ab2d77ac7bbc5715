#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "lockstep/xla/engine/program.h"
#include "lockstep/xla/graph/pad_trace.h"
#include "lockstep/xla/tensor/lazy_storage.h"

/// Internal: launching a program.
namespace lockstep::xla {

/// The buffer handles that a program takes as arguments on each device: arguments of the trace, then numbers.
class LaunchArguments {
 public:
  explicit LaunchArguments(int num_partitions) : num_partitions_(num_partitions) {}
  /// Adds the arguments of one replica.
  void add(at::ArrayRef<const Node*> arguments, const std::vector<double>& numbers,
           const std::vector<int64_t>& integers, const XlaDevice& device);
  const std::vector<std::vector<void*>>& handles() const { return handles_; }

 private:
  int num_partitions_;
  std::vector<std::vector<void*>> handles_;
  std::vector<Buffer> numbers_;
};

/// Executes a program. If it fails, arguments among `donated` whose memory is gone are lost, and the error says so. The
/// first execution waits for the results, because a program that needs too much memory fails then.
std::vector<std::vector<Buffer>> execute_program(const Program& program, const LaunchArguments& arguments,
                                                 const std::vector<const Node*>& donated);

/// Executes equal traces, one for each device, as one program. Their results become arguments; `on_launched` is called
/// before that.
void launch(at::ArrayRef<Trace*> traces, at::ArrayRef<XlaDevice*> devices,
            const std::function<void(const std::shared_ptr<const Program>&)>& on_launched = nullptr);

/// Executes padded traces as one program. The results of `traces`, from which they were made, become arguments whose
/// buffers are padded.
void launch_padded(at::ArrayRef<Trace*> traces, std::vector<PaddedTrace>& padded, at::ArrayRef<XlaDevice*> devices);

/// Moves result `i` of a replica out of the buffers that a program returned for each device.
std::unique_ptr<DeviceData> take_result(std::vector<std::vector<Buffer>>& of_devices, size_t replica, size_t i,
                                        const XlaDevice& device, LayoutPtr layout);

}  // namespace lockstep::xla
