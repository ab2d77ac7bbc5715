#include "bench/input_gpu.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <tuple>
#include <utility>

#include <torch/types.h>

#include "bench/wait_for_device.h"
#include "lockstep/base/error.h"
#include "lockstep/device/device_list.h"
#include "lockstep/device/host_copier.h"
#include "lockstep/device/logical_devices.h"
#include "lockstep/lockstep.h"

namespace lockstep::bench {
namespace {

constexpr int kWarmUp = 10;

/// Calls `work` for a time, and returns the seconds of one call.
double seconds_of_one(const GpuInputOptions& options, c10::Device device, const std::function<void()>& work) {
  for (int i = 0; i < kWarmUp; ++i) work();
  wait_for_device(device);
  const auto begin = std::chrono::steady_clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
  int64_t count = 0;
  while (elapsed() < options.seconds || count < kWarmUp) {
    work();
    // As far ahead of the device as a training loop is.
    if (++count % 4 == 0) wait_for_device(device);
  }
  wait_for_device(device);
  return elapsed() / static_cast<double>(count);
}

GpuInputResult result_of(const std::string& name, int64_t bytes, double seconds) {
  return {"input_gpu/" + name, bytes, seconds, static_cast<double>(bytes) / seconds, 0};
}

double seconds_of_bus(const GpuInputOptions& options, c10::Device device) {
  const auto bytes = at::TensorOptions().dtype(at::kByte);
  const at::Tensor source = at::zeros({options.batch_bytes}, bytes).pin_memory();
  at::Tensor copy = at::empty({options.batch_bytes}, bytes.device(device));
  return seconds_of_one(options, device, [&] { copy.copy_(source, /*non_blocking=*/true); });
}

int64_t bytes_of(const PerReplica<at::Tensor>& batches) {
  int64_t bytes = 0;
  for (const at::Tensor& batch : batches) bytes += static_cast<int64_t>(batch.nbytes());
  return bytes;
}
int64_t bytes_of(const std::tuple<PerReplica<at::Tensor>, PerReplica<at::Tensor>>& parts) {
  return bytes_of(std::get<0>(parts)) + bytes_of(std::get<1>(parts));
}

/// `make` makes a dataset of batches of `bytes` bytes.
template <class Make>
GpuInputResult measure_dataset(const GpuInputOptions& options, c10::Device device, const std::string& name,
                               const Make& make) {
  const OneDeviceStrategy strategy(options.device);
  const auto dataset = make();
  const auto distributed = strategy.distribute_dataset(dataset);
  auto iterator = distributed.iterator();
  const auto first = iterator.get_next();
  const int64_t bytes = bytes_of(first);
  const double before = seconds_of_bus(options, device);
  const double seconds = seconds_of_one(options, device, [&] { iterator.get_next(); });
  const double after = seconds_of_bus(options, device);
  GpuInputResult result = result_of(name, bytes, seconds);
  const double bus = static_cast<double>(options.batch_bytes) / std::min(before, after);
  result.fraction_of_bus = result.bytes_per_second / bus;
  return result;
}

/// A table of rows with the sizes `row`, which fills the batches of all repetitions.
struct Rows {
  Rows(const GpuInputOptions& options, const std::vector<int64_t>& row) {
    const int64_t row_bytes = c10::multiply_integers(row) * static_cast<int64_t>(sizeof(float));
    batch = std::max<int64_t>(1, options.batch_bytes / row_bytes);
    std::vector<int64_t> sizes{batch * options.num_batches};
    sizes.insert(sizes.end(), row.begin(), row.end());
    values = at::ones(sizes);
    labels = at::arange(values.size(0)) % 10;
  }
  auto slices() const { return data::from_tensor_slices(std::tuple{values, labels}); }

  int64_t batch;
  at::Tensor values;
  at::Tensor labels;
};

void bench_host_copies(const GpuInputOptions& options, std::vector<GpuInputResult>& results) {
  const at::Tensor source = at::ones({options.num_batches, options.batch_bytes}, at::kByte);
  const at::Tensor copy = at::zeros({options.batch_bytes}, at::kByte).pin_memory();
  for (int threads = 1; threads <= num_hardware_threads(); threads *= 2) {
    detail::HostCopier copier(threads);
    int64_t turn = 0;
    const double seconds = seconds_of_one(options, at::kCPU, [&] {
      const auto* from = static_cast<const char*>(source.select(0, turn++ % options.num_batches).data_ptr());
      copier.copy(static_cast<char*>(copy.data_ptr()), from, static_cast<size_t>(options.batch_bytes));
    });
    results.push_back(result_of(c10::str("host_copy_", threads, "_threads"), options.batch_bytes, seconds));
  }
}

}  // namespace

std::vector<GpuInputResult> bench_gpu_input(const GpuInputOptions& options) {
  apply_machine_defaults();
  std::vector<GpuInputResult> results;
  const std::string name = resolve_device_list({options.device}).front();
  const c10::Device device = find_logical_device(name).torch_device;
  LOCKSTEP_CHECK_VALUE(device.is_cuda(), "[bench input] the device must be a GPU: device=", options.device,
                       "; leave out --device to measure the pipelines of the CPU");
  results.push_back(result_of("bus", options.batch_bytes, seconds_of_bus(options, device)));
  bench_host_copies(options, results);
  {
    const Rows images(options, {3, 224, 224});
    results.push_back(
        measure_dataset(options, device, "images", [&] { return images.slices().batch(images.batch).repeat(); }));
    results.push_back(measure_dataset(options, device, "images_shuffled", [&] {
      return images.slices().shuffle(images.values.size(0)).batch(images.batch).repeat();
    }));
    const auto batches = images.values.view({options.num_batches, images.batch, 3, 224, 224});
    results.push_back(
        measure_dataset(options, device, "batches", [&] { return data::from_tensor_slices(batches).repeat(); }));
    results.push_back(measure_dataset(options, device, "images_padded", [&] {
      return data::from_tensor_slices(images.values).padded_batch(images.batch).repeat();
    }));
  }
  const Rows vectors(options, {784});
  results.push_back(
      measure_dataset(options, device, "vectors", [&] { return vectors.slices().batch(vectors.batch).repeat(); }));
  return results;
}

}  // namespace lockstep::bench
