#include "lockstep/strategy/losses.h"

#include <optional>
#include <string>

#include <ATen/ATen.h>

#include "tests/golden/drivers.h"
#include "tests/golden/strategies.h"
#include "tests/golden/tensors.h"

namespace lockstep::golden::drivers::losses {
namespace {

bool has_fractions(const Json& numbers) {
  if (numbers.is_number_float()) return true;
  if (!numbers.is_array()) return false;
  for (const Json& item : numbers) {
    if (has_fractions(item)) return true;
  }
  return numbers.empty();
}

/// Makes a tensor as TensorFlow does of numbers: int32 of whole ones, else float32.
at::Tensor tensor_of(const Json& numbers) {
  return tensor_from_json(has_fractions(numbers) ? "float32" : "int32", numbers);
}

std::optional<int64_t> batch_size_of(const Case& test_case) {
  const Json size = test_case.field("global_batch_size");
  if (size.is_null()) return std::nullopt;
  if (size.is_number_integer()) return size.get<int64_t>();
  constexpr std::string_view kTensor = "tensor ";
  if (const std::string text = test_case.text("global_batch_size"); text.starts_with(kTensor)) {
    return at::scalar_tensor(std::stoi(text.substr(kTensor.size())), at::kInt).item<int64_t>();
  }
  throw DoesNotCompile("a batch size is a whole number");
}

std::optional<at::Tensor> weight_of(const Case& test_case) {
  const Json weight = test_case.field("sample_weight");
  return weight.is_null() ? std::nullopt : std::optional(tensor_of(weight));
}

at::Tensor loss_of(const Case& test_case) {
  const Json loss = test_case.in.at("per_example_loss");
  const std::string dtype = test_case.text("dtype");
  return dtype.empty() ? tensor_of(loss) : tensor_from_json(dtype, loss);
}

}  // namespace

Outcome run(const Case& test_case) {
  const LogicalCpus cpus(test_case);
  const Strategy strategy = strategy_of(test_case);
  if (test_case.call == "compute_average_loss") {
    const at::Tensor loss = loss_of(test_case);
    const auto weight = weight_of(test_case);
    const auto average = [&] { return average_loss(loss, batch_size_of(test_case), weight); };
    return Outcome::of_value(run_at(test_case.text("where"), strategy, average));
  }
  if (test_case.call == "scale_regularization_loss") {
    const at::Tensor loss = tensor_of(test_case.in.at("loss"));
    return Outcome::of_value(
        run_at(test_case.text("where"), strategy, [&] { return scale_regularization_loss(loss); }));
  }
  throw HarnessError("[losses] unknown call: " + test_case.call);
}

}  // namespace lockstep::golden::drivers::losses
