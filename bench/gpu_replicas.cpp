#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ops/_foreach_add.h>
#include <torch/cuda.h>
#include <torch/optim/sgd.h>

#include "bench/gpu.h"
#include "bench/gpu_sides.h"
#include "bench/gpu_turns.h"
#include "lockstep/comm/group_impl.h"

namespace lockstep::bench {
namespace {

using Sgd = torch::optim::SGD;
using SgdSide = StrategyGpuSide<Sgd, torch::optim::SGDOptions>;

constexpr int64_t kReducedBytes = 256 << 20;
constexpr int64_t kCopiedBytes = 1 << 30;
constexpr int kReplicas = 2;
constexpr double kGpuRate = 0.01;
/// The stand-in for NCCL waits as long as a wire of this bandwidth takes (GB/s).
constexpr const char* kWire = "NCCL_STANDIN_WIRE_GBPS";

/// During its lifetime the stand-in makes communicators without a wire.
class WithoutWire {
 public:
  WithoutWire() {
    const char* const wire = std::getenv(kWire);
    if (wire == nullptr) return;
    gbps_ = wire;
    ::unsetenv(kWire);
  }
  ~WithoutWire() {
    if (gbps_) ::setenv(kWire, gbps_->c_str(), 1);
  }
  WithoutWire(const WithoutWire&) = delete;
  WithoutWire& operator=(const WithoutWire&) = delete;

  /// The bandwidth of the others.
  const std::optional<std::string>& gbps() const { return gbps_; }

 private:
  std::optional<std::string> gbps_;
};

torch::Tensor floats(int64_t bytes) {
  return torch::ones({bytes / static_cast<int64_t>(sizeof(float))}, torch::dtype(torch::kFloat).device(kCard));
}

/// Sums tensors of the card over two replicas, in place.
class ReducedTensors {
 public:
  ReducedTensors(Strategy strategy, int64_t bytes) : strategy_(std::move(strategy)) {
    for (int i = 0; i < kReplicas; ++i) tensors_.push_back({floats(bytes).mul_(2 * i)});
  }

  /// The mean of zeros and twos is one, however often it is taken.
  void step(int times) {
    strategy_.run([&] {
      const int replica = get_replica_context().replica_id_in_sync_group();
      const comm::Group& group = detail::Access::impl(strategy_).group(replica);
      for (int i = 0; i < times; ++i) group.all_reduce_(tensors_[replica], ReduceOp::Mean);
    });
  }

  bool uses_nccl() const { return detail::Access::impl(strategy_).group(0).impl()->uses_nccl(); }

  bool is_right() const {
    return std::all_of(tensors_.begin(), tensors_.end(),
                       [](const auto& each) { return each[0].eq(1).all().template item<bool>(); });
  }

 private:
  Strategy strategy_;
  std::vector<std::vector<torch::Tensor>> tensors_;
};

/// The step of two replicas that exchange nothing: each has a model and an update of its own.
class ReplicasAlone {
 public:
  ReplicasAlone(const GpuCase& gpu_case, const ModelBatch& batch, Strategy strategy) : strategy_(std::move(strategy)) {
    for (int i = 0; i < kReplicas; ++i) {
      models_.push_back(make_gpu_model(gpu_case));
      models_.back()->to(kCard);
      batches_.push_back(part_of(batch, i * gpu_case.batch / kReplicas, gpu_case.batch / kReplicas, kCard));
    }
  }

  void step() {
    strategy_.run([&] {
      const int replica = get_replica_context().replica_id_in_sync_group();
      const auto loss = models_[replica]->losses(batches_[replica]).mean();
      loss.backward();
      const torch::NoGradGuard no_grad;
      auto parameters = models_[replica]->parameters();
      std::vector<torch::Tensor> gradients;
      for (torch::Tensor& parameter : parameters) {
        gradients.push_back(parameter.grad());
        parameter.mutable_grad() = torch::Tensor();
      }
      at::_foreach_add_(parameters, gradients, -kGpuRate);
    });
  }

  int64_t bytes() const {
    int64_t sum = 0;
    for (const torch::Tensor& parameter : models_[0]->parameters()) sum += static_cast<int64_t>(parameter.nbytes());
    return sum;
  }

 private:
  Strategy strategy_;
  std::vector<std::shared_ptr<GpuModel>> models_;
  std::vector<ModelBatch> batches_;
};

MirroredStrategy two_replicas() { return MirroredStrategy({"GPU:0", "GPU:1"}); }

ModelBatch examples_of(const GpuCase& gpu_case) {
  torch::manual_seed(2);
  return make_gpu_model(gpu_case)->make_batch(gpu_case.batch);
}

}  // namespace

GpuLine bench_gpu_all_reduce(const GpuOptions& options) {
  const TwoLogicalGpus gpus;
  ReducedTensors reduced(two_replicas(), kReducedBytes);
  const torch::Tensor from = floats(kCopiedBytes);
  const torch::Tensor to = floats(kCopiedBytes);
  constexpr int kTimes = 8;  // of a run, whose own cost is that of a step
  GpuTurns turns;
  turns.add([&] { reduced.step(kTimes); });
  turns.add([&] { to.copy_(from); });
  const auto of = turns.take(options.seconds);
  // Each buffer is read and written, as those of a copy are.
  const double moved = 2.0 * kReplicas * kReducedBytes / (of[0] / kTimes);
  const double copied = 2.0 * kCopiedBytes / of[1];
  GpuLine line{{"name", "gpu/all_reduce"},   {"replicas", static_cast<int64_t>(kReplicas)},
               {"bytes", kReducedBytes},     {"seconds", of[0] / kTimes},
               {"bytes_per_second", moved},  {"copy_bytes_per_second", copied},
               {"right", reduced.is_right()}};
  add_fraction(line, "fraction_of_copy", moved / copied, 0.8, reduced.is_right());
  return line;
}

GpuLine bench_gpu_overlap(const GpuOptions& options) {
  const TwoLogicalGpus gpus;
  const GpuCase gpu_case{.model = "resnet18", .width = 0, .batch = 64};
  GpuLine line = describe("gpu/overlap", gpu_case);
  const ModelBatch batch = examples_of(gpu_case);
  const torch::optim::SGDOptions settings(kGpuRate);
  SgdSide over_wire(gpu_case, batch, two_replicas(), settings);
  ReplicasAlone alone(gpu_case, batch, two_replicas());
  ReducedTensors sums(two_replicas(), alone.bytes());
  // Groups connect at their first call; gradients have one of their own from the second step on.
  for (int i = 0; i < 3; ++i) over_wire.step();
  sums.step(1);
  const WithoutWire no_wire;
  SgdSide without_wire(gpu_case, batch, two_replicas(), settings);
  ReducedTensors sums_without_wire(two_replicas(), alone.bytes());
  for (int i = 0; i < 3; ++i) without_wire.step();
  sums_without_wire.step(1);
  GpuTurns turns;
  turns.add([&] { over_wire.step(); });
  turns.add([&] { without_wire.step(); });
  turns.add([&] { alone.step(); });
  turns.add([&] { sums.step(1); });
  turns.add([&] { sums_without_wire.step(1); });
  const auto of = turns.take(6 * options.seconds);  // the difference of two steps that differ by little
  // What the wire adds to the step, of what it adds to sums that nothing hides.
  const double hidden = 1 - (of[0] - of[1]) / (of[3] - of[4]);
  line.emplace_back("replicas", static_cast<int64_t>(kReplicas));
  line.emplace_back("bytes", alone.bytes());
  line.emplace_back("seconds", of[0]);
  line.emplace_back("seconds_without_wire", of[1]);
  line.emplace_back("seconds_without_exchange", of[2]);
  line.emplace_back("seconds_sums", of[3]);
  line.emplace_back("seconds_sums_without_wire", of[4]);
  if (!no_wire.gbps() || !sums.uses_nccl()) {
    line.emplace_back("unmeasured", std::string("communication over a wire: it needs ") + kWire +
                                        " and the stand-in for NCCL; bench/gpu.sh sets both");
    return line;
  }
  line.emplace_back("wire_gbps", *no_wire.gbps());
  add_fraction(line, "fraction_hidden", hidden, 0.9);
  return line;
}

GpuLine bench_gpu_replicas(const GpuCase& gpu_case, const GpuOptions& options) {
  const TwoLogicalGpus gpus;
  GpuLine line = describe("gpu/replicas", gpu_case);
  const ModelBatch batch = examples_of(gpu_case);
  const torch::optim::SGDOptions settings(kGpuRate);
  SgdSide one(gpu_case, batch, MirroredStrategy({"GPU:0"}), settings);
  SgdSide two(gpu_case, batch, two_replicas(), settings);
  SgdSide one_pure(gpu_case, batch, MirroredStrategy({"GPU:0"}), settings);
  SgdSide two_pure(gpu_case, batch, two_replicas(), settings);
  GpuTurns turns;
  turns.add([&] { one.step(); });
  turns.add([&] { two.step(); });
  turns.add([&] { one_pure.pure_step(); });
  turns.add([&] { two_pure.pure_step(); });
  const auto of = turns.take(2 * options.seconds);
  line.emplace_back("replicas", static_cast<int64_t>(kReplicas));
  line.emplace_back("seconds_1", of[0]);
  line.emplace_back("seconds_2", of[1]);
  line.emplace_back("ratio", of[1] / of[0]);
  line.emplace_back("seconds_pure_1", of[2]);
  line.emplace_back("seconds_pure_2", of[3]);
  line.emplace_back("ratio_pure", of[3] / of[2]);
  line.emplace_back("replayed", two_pure.is_replayed());
  if (!two_pure.is_replayed()) line.emplace_back("why_not", two_pure.why_not());
  return line;
}

}  // namespace lockstep::bench
