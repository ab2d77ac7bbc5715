// What the API pages print, letter by letter: devices of results, gather, values from functions. Logical CPUs replace
// GPUs on machines without any.

#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/lockstep.h"
#include "tests/strategy/shown.h"

namespace lockstep {
namespace {

using tests::shown;

/// Returns the items as Python prints a tuple.
template <class T>
std::string tuple_of(const std::vector<T>& items, const std::string& separator = ", ") {
  std::string text;
  for (const T& item : items) text += (text.empty() ? "" : separator) + repr(item);
  return "(" + text + ")";
}

/// Returns the text without empty lines. NumPy prints one between the matrices of an array, and the pages leave it out.
std::string without_empty_lines(std::string text) {
  for (size_t at = text.find("\n\n"); at != std::string::npos; at = text.find("\n\n")) text.erase(at, 1);
  return text;
}

class SeedPagesPrinted : public ::testing::Test {
 protected:
  void SetUp() override {
    set_logical_devices("CPU", 4);
    if (type == "GPU") set_logical_devices("GPU", 4);
  }
  void TearDown() override { reset_logical_devices(); }

  std::vector<std::string> devices(int count) const {
    std::vector<std::string> names;
    for (int i = 0; i < count; ++i) names.push_back(type + ":" + std::to_string(i));
    return names;
  }

  /// The pages' name of a device.
  std::string page_name(int index) const {
    return "/job:localhost/replica:0/task:0/device:" + type + ":" + std::to_string(index);
  }

  const std::string type = list_physical_devices("GPU").empty() ? "CPU" : "GPU";
};

// Pages of OneDeviceStrategy and runner.TPUStrategy: "Check devices on which per replica result is".
TEST_F(SeedPagesPrinted, DevicesOfResults) {
  const MirroredStrategy strategy(devices(2));
  std::vector<std::string> computed_on(2);
  const auto step_fn = [&] {
    const int i = get_replica_context().replica_id_in_sync_group();
    computed_on[i] = current_device();
    return at::full({}, i, at::TensorOptions(at::kInt).device(find_logical_device(current_device()).torch_device));
  };
  const auto per_replica_result = strategy.run(step_fn);
  const auto results = strategy.experimental_local_results(per_replica_result);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(computed_on[i], page_name(i));
    EXPECT_EQ(results.at(i).device(), find_logical_device(page_name(i)).torch_device);
  }
  const at::Tensor total = strategy.reduce("SUM", per_replica_result, std::nullopt);
  EXPECT_EQ(repr(total), "<tf.Tensor: shape=(), dtype=int32, numpy=1>");
  EXPECT_EQ(total.device(), find_logical_device("/job:localhost/replica:0/task:0/device:CPU:0").torch_device);
}

// Page of OneDeviceStrategy: `print(v.device)`.
TEST_F(SeedPagesPrinted, DeviceOfAVariable) {
  const OneDeviceStrategy strategy("/" + type + ":1");
  auto scope = strategy.scope();
  EXPECT_EQ(Variable(1.0).device(), page_name(1));
}

// Pages of OneDeviceStrategy and runner.TPUStrategy: `print(result)` of a list of PerReplica values.
TEST_F(SeedPagesPrinted, ResultsOfADataset) {
  const MirroredStrategy strategy(devices(2));
  std::string result;
  for (const auto& x : strategy.experimental_distribute_dataset(data::range(4).batch(2))) {
    result += (result.empty() ? "" : ", ") + shown(strategy.run([](const at::Tensor& input) { return input * 2; }, x));
  }
  EXPECT_EQ("[" + result + "]",
            "[PerReplica:{\n"
            "  0: <tf.Tensor: shape=(1,), dtype=int64, numpy=array([0])>,\n"
            "  1: <tf.Tensor: shape=(1,), dtype=int64, numpy=array([2])>\n"
            "}, PerReplica:{\n"
            "  0: <tf.Tensor: shape=(1,), dtype=int64, numpy=array([4])>,\n"
            "  1: <tf.Tensor: shape=(1,), dtype=int64, numpy=array([6])>\n"
            "}]");
}

// Pages of CentralStorageStrategy and runner.TPUStrategy: the first example of gather.
TEST_F(SeedPagesPrinted, GatherOfTwo) {
  const MirroredStrategy strategy(devices(2));
  const auto distributed_values = strategy.experimental_distribute_values_from_function([](const ValueContext&) {
    return torch::tensor({{1}, {2}}, at::kInt);
  });
  EXPECT_EQ(repr(strategy.gather(distributed_values, /*axis=*/0)),
            "<tf.Tensor: shape=(4, 1), dtype=int32, numpy=\n"
            "array([[1],\n"
            "       [2],\n"
            "       [1],\n"
            "       [2]], dtype=int32)>");
}

// The same pages: "consider the following example for more combinations".
TEST_F(SeedPagesPrinted, GatherOfFourAlongEachAxis) {
  const MirroredStrategy strategy(devices(4));
  const at::Tensor single_tensor = at::arange(6, at::kInt).reshape({1, 2, 3});
  const auto distributed_values =
      strategy.experimental_distribute_values_from_function([&](const ValueContext&) { return single_tensor.clone(); });
  const auto run = [&](int64_t axis) { return without_empty_lines(repr(strategy.gather(distributed_values, axis))); };
  EXPECT_EQ(run(0),
            "<tf.Tensor: shape=(4, 2, 3), dtype=int32, numpy=\n"
            "array([[[0, 1, 2],\n"
            "        [3, 4, 5]],\n"
            "       [[0, 1, 2],\n"
            "        [3, 4, 5]],\n"
            "       [[0, 1, 2],\n"
            "        [3, 4, 5]],\n"
            "       [[0, 1, 2],\n"
            "        [3, 4, 5]]], dtype=int32)>");
  EXPECT_EQ(run(1),
            "<tf.Tensor: shape=(1, 8, 3), dtype=int32, numpy=\n"
            "array([[[0, 1, 2],\n"
            "        [3, 4, 5],\n"
            "        [0, 1, 2],\n"
            "        [3, 4, 5],\n"
            "        [0, 1, 2],\n"
            "        [3, 4, 5],\n"
            "        [0, 1, 2],\n"
            "        [3, 4, 5]]], dtype=int32)>");
  EXPECT_EQ(run(2),
            "<tf.Tensor: shape=(1, 2, 12), dtype=int32, numpy=\n"
            "array([[[0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2],\n"
            "        [3, 4, 5, 3, 4, 5, 3, 4, 5, 3, 4, 5]]], dtype=int32)>");
}

// Pages of CentralStorageStrategy and runner.TPUStrategy: shapes (1, 2, 3) and (1, 3, 3) along axis 1 only.
TEST_F(SeedPagesPrinted, GatherOfDifferentShapes) {
  const MirroredStrategy strategy(devices(2));
  const auto values = strategy.experimental_distribute_values_from_function([](const ValueContext& context) {
    return at::zeros({1, 2 + context.replica_id_in_sync_group, 3});
  });
  EXPECT_EQ(strategy.gather(values, 1).sizes(), (std::vector<int64_t>{1, 5, 3}));
  EXPECT_THROW(strategy.gather(values, 0), c10::Error);
  EXPECT_THROW(strategy.gather(values, 2), c10::Error);
}

// The same pages: examples 1 to 3 of experimental_distribute_values_from_function.
TEST_F(SeedPagesPrinted, ValuesFromFunctions) {
  const MirroredStrategy strategy(devices(2));
  const auto local_result = [&](auto value_fn) {
    const auto distributed_values = strategy.experimental_distribute_values_from_function(value_fn);
    return strategy.experimental_local_results(distributed_values);
  };
  EXPECT_EQ(tuple_of(local_result([](const ValueContext&) { return at::scalar_tensor(1.0f); }), ",\n "),
            "(<tf.Tensor: shape=(), dtype=float32, numpy=1.0>,\n"
            " <tf.Tensor: shape=(), dtype=float32, numpy=1.0>)");
  const std::vector<double> array_value{3., 2., 1.};
  EXPECT_EQ(tuple_of(local_result([&](const ValueContext& ctx) { return array_value[ctx.replica_id_in_sync_group]; })),
            "(3.0, 2.0)");
  EXPECT_EQ(tuple_of(local_result([](const ValueContext& ctx) { return ctx.num_replicas_in_sync; })), "(2, 2)");
}

// Example 4: values that were placed on the replicas' devices stay there.
TEST_F(SeedPagesPrinted, ValuesOnDevices) {
  const MirroredStrategy strategy(devices(2));
  const std::vector<std::string> worker_devices = strategy.extended().worker_devices();
  std::vector<at::Tensor> multiple_values;
  for (int i = 0; i < strategy.num_replicas_in_sync(); ++i) {
    multiple_values.push_back(at::ones({}, find_logical_device(worker_devices[i]).torch_device));
  }
  const auto distributed_values = strategy.experimental_distribute_values_from_function(
      [&](const ValueContext& ctx) { return multiple_values[ctx.replica_id_in_sync_group]; });
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(distributed_values[i].is_same(multiple_values[i]));
}

}  // namespace
}  // namespace lockstep
