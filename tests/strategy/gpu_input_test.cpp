#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "lockstep/device/memory_use.h"
#include "lockstep/lockstep.h"

/// Batches on GPUs against those of as many replicas on the CPU.
namespace lockstep {
namespace {

using Tensors = std::vector<at::Tensor>;

/// Several replicas share one GPU.
class GpuInputTest : public ::testing::Test {
 protected:
  static constexpr int kMostReplicas = 3;

  void SetUp() override {
    if (!at::hasCUDA() || c10::impl::VirtualGuardImpl(at::kCUDA).deviceCount() == 0) GTEST_SKIP() << "no CUDA device";
    set_logical_devices("CPU", kMostReplicas);
    set_logical_devices("GPU", kMostReplicas);
  }
  void TearDown() override { reset_logical_devices(); }

  static MirroredStrategy replicas_on(const std::string& type, int replicas) {
    std::vector<std::string> devices;
    for (int i = 0; i < replicas; ++i) devices.push_back(c10::str(type, ":", i));
    return MirroredStrategy(devices);
  }
};

/// Adds the tensors of a value to `all`.
void add_tensors(const PerReplica<at::Tensor>& values, Tensors& all) {
  all.insert(all.end(), values.begin(), values.end());
}
template <class Value>
void add_tensors(const std::map<std::string, Value>& values, Tensors& all) {
  for (const auto& [key, value] : values) add_tensors(value, all);
}
template <class... Values>
void add_tensors(const std::tuple<Values...>& values, Tensors& all) {
  std::apply([&](const auto&... each) { (add_tensors(each, all), ...); }, values);
}

/// The tensors of the next step; none where it throws; nothing at the end.
template <class Iterator>
std::optional<Tensors> next_step(Iterator& iterator) {
  try {
    const auto values = iterator.get_next_as_optional();
    if (!values) return std::nullopt;
    Tensors tensors;
    add_tensors(*values, tensors);
    return tensors;
  } catch (const std::exception&) {
    return Tensors{};
  }
}

/// Writes to the tensor as a training step may, after it was read.
void overwrite(at::Tensor tensor) {
  if (tensor.numel() > 0) tensor.zero_();
}

template <class GpuIterator, class CpuIterator>
void expect_same_rest(GpuIterator& on_gpu, CpuIterator& on_cpu, int64_t most = 40) {
  std::vector<Tensors> kept;
  std::vector<Tensors> wanted;
  for (int64_t step = 0; step < most; ++step) {
    const auto found = next_step(on_gpu);
    const auto want = next_step(on_cpu);
    ASSERT_EQ(found.has_value(), want.has_value()) << "step " << step;
    if (!found) break;
    ASSERT_EQ(found->size(), want->size()) << "step " << step;
    Tensors copies;
    for (size_t i = 0; i < found->size(); ++i) {
      const at::Tensor& tensor = (*found)[i];
      ASSERT_TRUE(tensor.is_cuda());
      ASSERT_EQ(tensor.scalar_type(), (*want)[i].scalar_type());
      copies.push_back(tensor.clone());
      overwrite(tensor);
    }
    kept.push_back(copies);
    wanted.push_back(*want);
  }
  ASSERT_FALSE(kept.empty());
  for (size_t step = 0; step < kept.size(); ++step) {
    for (size_t i = 0; i < kept[step].size(); ++i) {
      ASSERT_TRUE(at::equal(kept[step][i].cpu(), wanted[step][i])) << "step " << step << ", tensor " << i;
    }
  }
}

template <class T>
void expect_same_steps(const MirroredStrategy& gpus, const MirroredStrategy& cpus, const data::Dataset<T>& dataset,
                       const InputOptions& options = {}) {
  auto on_gpu = gpus.distribute_dataset(dataset, options);
  auto on_cpu = cpus.distribute_dataset(dataset, options);
  torch::manual_seed(5);
  auto found = on_gpu.iterator();
  auto want = on_cpu.iterator();
  want.restore(found.position());  // the same epoch
  expect_same_rest(found, want);
}

at::Tensor table(std::vector<int64_t> sizes, at::ScalarType dtype = at::kFloat) {
  return at::arange(c10::multiply_integers(sizes)).remainder(1009).view(sizes).to(dtype);
}

TEST_F(GpuInputTest, EveryShapeAndType) {
  for (const int replicas : {1, 2, 3}) {
    const MirroredStrategy gpus = replicas_on("GPU", replicas);
    const MirroredStrategy cpus = replicas_on("CPU", replicas);
    for (const auto dtype : {at::kByte, at::kShort, at::kLong, at::kHalf, at::kBFloat16, at::kFloat, at::kDouble,
                             at::kBool, at::kComplexFloat}) {
      for (const int64_t columns : {1, 7, 1024}) {
        SCOPED_TRACE(c10::str(replicas, " replicas, ", dtype, ", ", columns));
        const auto rows = data::from_tensor_slices(std::tuple{table({1300, columns}, dtype), table({1300}, dtype)});
        expect_same_steps(gpus, cpus, rows.batch(600));  // and a remainder
      }
    }
  }
}

TEST_F(GpuInputTest, ShuffledRepeatedAndMapped) {
  for (const int replicas : {1, 3}) {
    const MirroredStrategy gpus = replicas_on("GPU", replicas);
    const MirroredStrategy cpus = replicas_on("CPU", replicas);
    const auto rows = data::from_tensor_slices(std::tuple{table({500, 3, 32, 32}), at::arange(500)});
    const auto shuffled = rows.shuffle(500, {.seed = 4});
    const auto scale = [](const at::Tensor& x, const at::Tensor& y) { return std::tuple{x * 2, y + 1}; };
    const auto in_place = [](at::Tensor x, at::Tensor y) { return std::tuple{x.mul_(2), y.add_(1)}; };
    for (const int64_t buffer : {0, 1, 3}) {
      const InputOptions options{.per_replica_buffer_size = buffer};
      expect_same_steps(gpus, cpus, shuffled.batch(128).repeat(3), options);
      expect_same_steps(gpus, cpus, shuffled.map(scale).batch(128), options);
      expect_same_steps(gpus, cpus, shuffled.map(scale, {.num_threads = 3}).batch(128), options);
      expect_same_steps(gpus, cpus, shuffled.batch(128).map(scale), options);
      expect_same_steps(gpus, cpus, shuffled.batch(128).map(in_place), options);
      expect_same_steps(gpus, cpus, shuffled.batch(128).cache().repeat(2), options);
      expect_same_steps(gpus, cpus, shuffled.batch(128).prefetch(2), options);
      expect_same_steps(gpus, cpus, shuffled.batch(128).unbatch().batch(100), options);
      expect_same_steps(gpus, cpus, shuffled.padded_batch(100), options);
    }
  }
}

TEST_F(GpuInputTest, NestedStructures) {
  using Inner = std::map<std::string, at::Tensor>;
  const auto rows = data::range(200).map([](int64_t i) {
    return std::tuple{Inner{{"image", at::full({3, 40, 40}, i, at::kFloat)}, {"size", at::full({2}, i)}},
                      at::full({5, 300}, i, at::kInt).t()};
  });
  expect_same_steps(replicas_on("GPU", 2), replicas_on("CPU", 2), rows.batch(96));
}

TEST_F(GpuInputTest, BatchesThatWereThereBefore) {
  const at::Tensor batches = table({6, 64, 3, 128, 128});  // parts of more than 8 MiB
  const auto channels_last = [](const at::Tensor& x) { return x.contiguous(at::MemoryFormat::ChannelsLast); };
  const auto narrowed = [](const at::Tensor& x) { return x.narrow(3, 3, 100); };
  const auto pinned = [](const at::Tensor& x) { return x.pin_memory(); };
  for (const int replicas : {1, 2}) {
    const MirroredStrategy gpus = replicas_on("GPU", replicas);
    const MirroredStrategy cpus = replicas_on("CPU", replicas);
    const auto dataset = data::from_tensor_slices(batches);
    expect_same_steps(gpus, cpus, dataset);
    expect_same_steps(gpus, cpus, dataset.map(channels_last));
    expect_same_steps(gpus, cpus, dataset.map(narrowed));
    expect_same_steps(gpus, cpus, dataset.map(pinned));
    // A function that keeps what it returns, and writes to it later. Each pipeline has its own: they run on two
    // threads.
    const auto refilled = [] {
      return data::range(30).map([buffer = at::empty({64, 50, 50}).pin_memory()](int64_t i) {
        buffer.fill_(i);
        return buffer;
      });
    };
    auto on_gpu = gpus.distribute_dataset(refilled());
    auto on_cpu = cpus.distribute_dataset(refilled());
    auto found = on_gpu.iterator();
    auto want = on_cpu.iterator();
    expect_same_rest(found, want);
  }
}

TEST_F(GpuInputTest, RowsOfABatchInPageLockedMemory) {
  // Without a batch behind it a row of the batch is uploaded from where it lies, and nothing else holds it.
  const auto rows = data::from_tensor_slices(table({400, 8, 4096})).shuffle(400, {.seed = 1}).batch(50).unbatch();
  expect_same_steps(replicas_on("GPU", 1), replicas_on("CPU", 1), rows);
}

TEST_F(GpuInputTest, ErrorsOfFunctions) {
  const auto rows = data::range(400).map([](int64_t i) {
    if (i % 90 == 17) throw std::runtime_error("bad element");
    return std::tuple{at::full({2048}, i, at::kFloat), i};
  });
  for (const int replicas : {1, 2}) {
    expect_same_steps(replicas_on("GPU", replicas), replicas_on("CPU", replicas), rows.batch(80));
    expect_same_steps(replicas_on("GPU", replicas), replicas_on("CPU", replicas), rows.ignore_errors().batch(80));
  }
}

TEST_F(GpuInputTest, EarlyStopsAndPositions) {
  const auto rows = data::from_tensor_slices(std::tuple{table({800, 3000}), at::arange(800)}).shuffle(800, {.seed = 2});
  const auto on_gpu = replicas_on("GPU", 2).distribute_dataset(rows.batch(100));
  const auto on_cpu = replicas_on("CPU", 2).distribute_dataset(rows.batch(100));
  for (int steps = 0; steps < 8; ++steps) {
    auto stopped = on_gpu.iterator();
    auto want = on_cpu.iterator();
    want.restore(stopped.position());  // the same epoch
    for (int i = 0; i < steps; ++i) {
      ASSERT_TRUE(next_step(stopped));
      ASSERT_TRUE(next_step(want));
    }
    auto restored = on_gpu.iterator();
    restored.restore(stopped.position());
    expect_same_rest(restored, want);
  }
}

TEST_F(GpuInputTest, ThousandStepsInTheSameMemory) {
  const at::Device device(at::kCUDA, 0);
  const auto rows = data::from_tensor_slices(std::tuple{table({512, 16384}), at::arange(512)});
  const auto batches = table({4, 64, 16384});
  const MirroredStrategy strategy = replicas_on("GPU", 2);
  const auto run_through = [&](const auto& dataset) {
    auto iterator = strategy.distribute_dataset(dataset.repeat()).iterator();
    std::optional<int64_t> host;
    std::optional<int64_t> peak;
    for (int step = 0; step <= 1000; ++step) {
      Tensors tensors;
      add_tensors(iterator.get_next(), tensors);
      for (const at::Tensor& tensor : tensors) overwrite(tensor);
      if (step == 100) detail::take_peak_bytes(device);
      if (step == 300) {
        host = detail::resident_bytes();
        peak = detail::take_peak_bytes(device);
      }
    }
    constexpr int64_t kMiB = 1 << 20;
    if (host) {
      EXPECT_LE(*detail::resident_bytes(), *host + 16 * kMiB);
    }
    if (peak) {
      EXPECT_LE(*detail::take_peak_bytes(device), *peak + 8 * kMiB);
    }
  };
  run_through(rows.batch(64));
  run_through(data::from_tensor_slices(batches));
}

}  // namespace
}  // namespace lockstep
