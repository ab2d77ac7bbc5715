#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include "lockstep/api.h"
#include "lockstep/strategy/optimizer/optimizer_setup.h"

/// How much memory a training takes, before it is started.
namespace lockstep {

/// A step of a training on one device, of which `measure_step` makes a few. It changes the parameters.
struct LOCKSTEP_API EstimatedStep {
  std::vector<at::Tensor> parameters;
  std::vector<at::Tensor> buffers;
  /// Makes a batch with this many rows, on the device of the parameters.
  std::function<std::vector<at::Tensor>(int64_t rows)> make_batch;
  /// Returns the loss of a batch, a scalar.
  std::function<at::Tensor(const std::vector<at::Tensor>& batch)> loss;
  std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<at::Tensor> parameters)> make_optimizer;

  /// Takes the parameters and the buffers of a module.
  void set_module(const torch::nn::Module& module);
};

/// The memory of a step on one replica, in bytes.
struct LOCKSTEP_API StepMemory {
  /// The rows that it holds for, and the most rows that were measured. For more than these, it is extrapolated; where
  /// none were measured, it is the least that is needed.
  int64_t rows = 0;
  int64_t measured_rows = 0;
  /// The number of elements of all parameters.
  int64_t num_parameters = 0;
  int64_t parameters = 0;
  int64_t buffers = 0;
  int64_t gradients = 0;
  int64_t optimizer_state = 0;
  int64_t input = 0;
  /// What the forward pass keeps for the backward pass, with the loss.
  int64_t activations = 0;
  /// The most that input, activations, gradients and temporary tensors take together at any moment of the forward and
  /// the backward pass. Activations are given back while gradients are computed: it is less than their sum.
  int64_t passes = 0;
  /// The most that gradients and temporary tensors take during an update of whole parameters.
  int64_t update = 0;
  c10::Device device{c10::DeviceType::CPU};
};

/// Makes a few steps with up to eight rows, and returns the memory of a step with `rows` rows. Sizes of parameters,
/// buffers, gradients and optimizer state are exact. Those of input, activations and temporary tensors are measured at
/// two numbers of rows, allocation by allocation, and each is continued as a straight line.
///
/// What libraries take beside LibTorch's allocator (workspaces of oneDNN, cuDNN, the CUDA context) does not count.
/// c10::OutOfMemoryError where an allocation fails: then a training does not fit, either. Numbers of bytes end at the
/// largest int64_t.
LOCKSTEP_API StepMemory measure_step(const EstimatedStep& step, int64_t rows);

enum class EstimatedStrategy { OneDevice, Mirrored, MultiWorker, Central, TPU };
/// Returns the strategy of a name: one_device, mirrored, multi_worker, central, tpu. ValueError for another one.
LOCKSTEP_API EstimatedStrategy estimated_strategy(const std::string& name);

/// How a model is trained.
struct LOCKSTEP_API TrainingPlan {
  EstimatedStrategy strategy = EstimatedStrategy::OneDevice;
  /// Of one worker.
  int replicas = 1;
  int workers = 1;
  /// Whether all workers run on one machine and share memory; else each has a machine of its own.
  bool one_machine = false;
  /// What the optimizer divides over replicas. Gradients count as a whole: backward may need all of them at once.
  Shard shard = Shard::None;
  /// The first of the devices that replicas compute on; CPU replicas share the machine's memory.
  c10::Device device{c10::DeviceType::CPU};
};

/// The memory of one place: of a machine, or of one GPU or TPU core.
struct LOCKSTEP_API PlaceMemory {
  /// "the machine", "each device".
  std::string name;
  int64_t parameters = 0;
  int64_t buffers = 0;
  int64_t optimizer_state = 0;
  /// Input, activations, gradients and temporary tensors of the replicas there, at the moment when they are largest.
  int64_t step = 0;
  /// What it has; 0 where that is not known.
  int64_t available = 0;
  /// What other processes leave of it now; 0 where that is not known.
  int64_t free = 0;

  int64_t total() const;
};

struct LOCKSTEP_API MemoryEstimate {
  StepMemory replica;
  std::vector<PlaceMemory> places{};

  /// Whether every place whose size is known has more than is needed. Other processes may use a part of it.
  bool fits() const;
  /// One sentence: "the machine needs 3.2 GiB of 16.0 GiB, 9.1 GiB of it free: it fits".
  std::string verdict() const;
};

/// Returns what a training takes, from the memory of a step on one replica.
///
/// On CPUs the replicas of a worker share the optimizer's state: each updates a part of all parameters. On GPUs and TPU
/// cores each replica has all of it, or its part where the plan divides it (`shard`). Central storage has parameters
/// and state once, and copies of the parameters on other devices.
LOCKSTEP_API MemoryEstimate estimate_memory(const StepMemory& step, const TrainingPlan& plan);

/// Measures, and estimates: `rows` are those of one replica.
LOCKSTEP_API MemoryEstimate estimate_memory(const EstimatedStep& step, int64_t rows, const TrainingPlan& plan);

/// Returns a number of bytes for people: "3.2 GiB".
LOCKSTEP_API std::string bytes_text(int64_t bytes);

}  // namespace lockstep
