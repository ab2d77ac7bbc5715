#include <mutex>
#include <optional>
#include <set>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "lockstep/xla/counters.h"
#include "lockstep/xla/engine/start.h"
#include "lockstep/xla/lower/lowering.h"
#include "tests/xla/lower_checks.h"
#include "tests/xla/plugin.h"

namespace lockstep::xla::test {

at::Tensor random(at::IntArrayRef shape) { return at::randn(shape, at::kDouble).requires_grad_(); }
at::Tensor positive(at::IntArrayRef shape) { return (at::rand(shape, at::kDouble) + 0.5).requires_grad_(); }
at::Tensor indices(at::IntArrayRef shape, int64_t limit) { return at::randint(limit, shape, at::kLong); }

namespace {

using at::Tensor;

/// The functions of LibTorch that were called while it is alive: "relu_", "add.Tensor".
class CalledFunctions {
 public:
  CalledFunctions() {
    const std::lock_guard<std::mutex> lock(all().mutex);
    all().names.clear();
    handle_ = at::addGlobalCallback(at::RecordFunctionCallback(&note).scopes({at::RecordScope::FUNCTION}));
  }
  ~CalledFunctions() { at::removeCallback(handle_); }
  CalledFunctions(const CalledFunctions&) = delete;
  CalledFunctions& operator=(const CalledFunctions&) = delete;

  std::set<std::string> names() const {
    const std::lock_guard<std::mutex> lock(all().mutex);
    return all().names;
  }

 private:
  /// Threads of backward passes call functions, too.
  struct All {
    std::mutex mutex;
    std::set<std::string> names;
  };
  static All& all() {
    static auto& only = *new All;
    return only;
  }

  static std::unique_ptr<at::ObserverContext> note(const at::RecordFunction& function) {
    const auto name = function.operator_name();
    if (!name) return nullptr;
    const std::lock_guard<std::mutex> lock(all().mutex);
    all().names.insert(name->overload_name.empty() ? name->name : name->name + "." + name->overload_name);
    return nullptr;
  }

  at::CallbackHandle handle_;
};

double tolerance(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
      return 1e-9;
    case at::kFloat:
      return 1e-5;
    case at::kHalf:
      return 2e-3;
    case at::kBFloat16:
      return 1.6e-2;
    default:
      return 0;
  }
}

Tensors on_device(const Tensors& inputs, const c10::Device& device) {
  Tensors moved;
  for (const Tensor& input : inputs) {
    moved.push_back(input.detach().to(device).requires_grad_(input.requires_grad()));
  }
  return moved;
}

/// Values, then gradients of their weighted sum.
Tensors outcome(const Check& check, const Tensors& inputs) {
  Tensors values = check.run(inputs);
  Tensor total;
  for (const Tensor& value : values) {
    if (!value.requires_grad() || value.numel() == 0) continue;
    const Tensor weights =
        at::linspace(0.5, 1.5, value.numel(), value.options().requires_grad(false)).view(value.sizes());
    const Tensor part = (value * weights).sum().to(at::kDouble);
    total = total.defined() ? total + part : part;
  }
  Tensors leaves;
  for (const Tensor& input : inputs) {
    if (input.requires_grad()) leaves.push_back(input);
  }
  if (total.defined()) {
    for (Tensor& gradient : torch::autograd::grad({total}, leaves, {}, {}, false, true)) values.push_back(gradient);
  }
  return values;
}

void expect_same(const Tensors& expected, const Tensors& found) {
  ASSERT_EQ(expected.size(), found.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    SCOPED_TRACE("result " + std::to_string(i));
    ASSERT_EQ(expected[i].defined(), found[i].defined());
    if (!expected[i].defined()) continue;
    const Tensor wanted = expected[i].detach(), got = found[i].detach().cpu();
    ASSERT_EQ(wanted.scalar_type(), got.scalar_type());
    ASSERT_EQ(wanted.sizes(), got.sizes());
    const double allowed = tolerance(wanted.scalar_type());
    EXPECT_TRUE(at::allclose(got.to(at::kDouble), wanted.to(at::kDouble), allowed, allowed, /*equal_nan=*/true))
        << "expected\n"
        << wanted << "\nfound\n"
        << got;
  }
}

class LowerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    LOCKSTEP_NEEDS_PLUGIN();
    at::manual_seed(5);
    start();
    device_ = device_of({0}).torch_device();
  }

  /// Traces some checks at a time, so that they are one program, and compares.
  void run(const Checks& checks) {
    constexpr size_t kAtOnce = 60;
    for (size_t first = 0; first < checks.size(); first += kAtOnce) {
      const at::ArrayRef<Check> some =
          at::ArrayRef<Check>(checks).slice(first, std::min(kAtOnce, checks.size() - first));
      std::vector<Tensors> found;
      for (const Check& check : some) found.push_back(traced(check));
      for (size_t i = 0; i < some.size(); ++i) {
        SCOPED_TRACE(some[i].name);
        if (!found[i].empty()) expect_same(outcome(some[i], some[i].inputs), found[i]);
      }
    }
  }

  /// Nothing where it fails.
  Tensors traced(const Check& check) {
    try {
      const auto before = counters().fallback_functions;
      const CalledFunctions called;
      Tensors found = outcome(check, on_device(check.inputs, *device_));
      const std::set<std::string> names = called.names();
      called_.insert(names.begin(), names.end());
      for (const auto& [name, times] : counters().fallback_functions) {
        const auto had = before.find(name);
        if (had == before.end() || had->second != times) ADD_FAILURE() << check.name << ": " << name << " fell back";
      }
      return found;
    } catch (const std::exception& error) {
      ADD_FAILURE() << check.name << ": " << error.what();
      return {};
    }
  }

  std::optional<c10::Device> device_;
  static std::set<std::string> called_;
};
std::set<std::string> LowerTest::called_;

TEST_F(LowerTest, Dtypes) { run(dtype_checks()); }
TEST_F(LowerTest, Pointwise) { run(pointwise_checks()); }
TEST_F(LowerTest, Activations) { run(activation_checks()); }
TEST_F(LowerTest, Reductions) { run(reduction_checks()); }
TEST_F(LowerTest, Layers) { run(layer_checks()); }
TEST_F(LowerTest, Pooling) { run(pooling_checks()); }
TEST_F(LowerTest, Losses) { run(loss_checks()); }
TEST_F(LowerTest, Indexing) { run(indexing_checks()); }
TEST_F(LowerTest, Shapes) { run(shape_checks()); }

/// Rows that no check of values reaches.
const std::set<std::string> kUnchecked{
    // Random: see random_test.cpp.
    "bernoulli",
    "bernoulli_.Tensor",
    "bernoulli_.float",
    "uniform_",
    "normal_",
    "log_normal_",
    "exponential_",
    "geometric_",
    "cauchy_",
    "normal.Tensor_float",
    "normal.float_Tensor",
    "normal.Tensor_Tensor",
    "random_",
    "random_.to",
    "random_.from",
    "randperm.generator_out",
    "multinomial",
    // Forms of later versions of LibTorch, which its C++ functions do not call.
    "any.dims",
    "all.dims",
    // Forms of batch normalization that only programs made by other tools contain.
    "_native_batch_norm_legit",
    "_native_batch_norm_legit.no_stats",
    "_native_batch_norm_legit_functional",
    "_native_batch_norm_legit_no_training",
    "_batch_norm_with_update",
    "_batch_norm_with_update_functional",
    "_batch_norm_no_update",
    "batch_norm_backward",
};

/// Whether a row was called: itself, in place, or with results given.
bool was_called(const std::set<std::string>& called, const std::string& row) {
  const std::string name = "aten::" + row.substr(0, row.find('.'));
  const std::string overload = row.find('.') == std::string::npos ? "" : row.substr(row.find('.'));
  if (called.count(name + overload) > 0 || called.count(name + "_" + overload) > 0) return true;
  const auto form = called.lower_bound(name + ".");
  return form != called.end() && form->rfind(name + ".", 0) == 0 && form->find("out") != std::string::npos;
}

TEST_F(LowerTest, EveryRowIsChecked) {
  for (const Checks& checks : {dtype_checks(), pointwise_checks(), activation_checks(), reduction_checks(),
                               layer_checks(), pooling_checks(), loss_checks(), indexing_checks(), shape_checks()}) {
    for (const Check& check : checks) traced(check);
  }
  for (const Lowering& row : all_lowerings()) {
    const std::string name = row.name;
    const bool exists = c10::Dispatcher::singleton()
                            .findSchema({"aten::" + name.substr(0, name.find('.')),
                                         name.find('.') == std::string::npos ? "" : name.substr(name.find('.') + 1)})
                            .has_value();
    if (!exists || kUnchecked.count(name) > 0) continue;
    EXPECT_TRUE(was_called(called_, name)) << name;
  }
}

}  // namespace
}  // namespace lockstep::xla::test
