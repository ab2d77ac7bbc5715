#include "lockstep/strategy/optimizer/update/rows/row_update.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <fstream>
#include <memory>
#include <random>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include "lockstep/base/error.h"
#include "lockstep/device/thread_share.h"

namespace lockstep::detail {
namespace {

namespace optim = torch::optim;

using Gradients = std::vector<at::Tensor>;

template <class O, class Options>
RowUpdate::MakeOptimizer maker(const Options& options) {
  return
      [options](const at::Tensor& stand_in) { return std::make_unique<O>(std::vector<at::Tensor>{stand_in}, options); };
}

at::Tensor sparse(const at::Tensor& rows, const at::Tensor& values, at::IntArrayRef sizes) {
  return at::_sparse_coo_tensor_unsafe(rows.reshape({1, -1}), values, sizes);
}

at::Tensor sparse(const std::vector<int64_t>& rows, const at::Tensor& values, at::IntArrayRef sizes) {
  return sparse(at::tensor(rows, at::kLong), values, sizes);
}

/// A gradient of `count` rows, many of them several times.
at::Tensor random_gradient(const at::Tensor& table, int64_t count, std::mt19937& random) {
  std::vector<int64_t> rows;
  const double skew = static_cast<double>(random() % 3);
  for (int64_t i = 0; i < count; ++i) {
    const double place = std::pow(static_cast<double>(random() % 100000) / 100000, 1 + skew);
    rows.push_back(static_cast<int64_t>(place * static_cast<double>(table.size(0))));
  }
  std::vector<int64_t> sizes = table.sizes().vec();
  sizes[0] = count;
  return sparse(rows, at::randn(sizes, at::kFloat).to(table.scalar_type()), table.sizes());
}

/// What gradients say of the table, added up in their order, in the type that is computed in.
at::Tensor dense_sum(const Gradients& gradients, const at::Tensor& table) {
  const auto dtype = table.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  at::Tensor sum = at::zeros(table.sizes(), dtype);
  for (const at::Tensor& gradient : gradients) {
    for (int64_t i = 0; i < gradient._values().size(0); ++i) {
      sum[gradient._indices()[0][i].item<int64_t>()] += gradient._values()[i].to(dtype);
    }
  }
  return sum;
}

/// One for each row: whether gradients name it.
at::Tensor touched_rows(const Gradients& gradients, const at::Tensor& table) {
  at::Tensor touched = at::zeros({table.size(0)}, at::kBool);
  for (const at::Tensor& gradient : gradients) touched.index_fill_(0, gradient._indices()[0], true);
  return touched;
}

/// Updates a table by several owners in threads of their own.
class Owners {
 public:
  Owners(const at::Tensor& table, int num_owners, int num_threads, const RowUpdate::MakeOptimizer& make)
      : num_threads_(num_threads) {
    for (int i = 0; i < num_owners; ++i) owners_.push_back(std::make_unique<RowUpdate>(table, i, num_owners, make));
  }

  void apply(const Gradients& gradients, const optim::OptimizerOptions& options,
             const std::vector<char*>& copies = {}) {
    std::vector<std::thread> threads;
    for (auto& owner : owners_) {
      threads.emplace_back([&, update = owner.get()] {
        const ThreadShare share(num_threads_);
        update->apply(gradients, copies, options);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  int64_t bytes_moved() const {
    int64_t sum = 0;
    for (const auto& owner : owners_) sum += owner->bytes_moved();
    return sum;
  }

 private:
  int num_threads_;
  std::vector<std::unique_ptr<RowUpdate>> owners_;
};

struct Case {
  at::ScalarType dtype;
  std::vector<int64_t> sizes;
  int64_t rows_per_gradient;
};

std::vector<Case> cases() {
  return {{at::kFloat, {300, 7}, 150},   {at::kFloat, {64, 3, 5}, 200},  {at::kFloat, {900, 80}, 450},
          {at::kDouble, {500, 16}, 150}, {at::kBFloat16, {400, 24}, 90}, {at::kHalf, {400, 33}, 120},
          {at::kFloat, {3, 70000}, 5},   {at::kFloat, {500}, 300},       {at::kDouble, {1, 4}, 12}};
}

at::Tensor random_table(const Case& about) {
  return at::randn(about.sizes, at::kFloat).to(about.dtype).requires_grad_();
}

std::vector<Gradients> random_steps(const Case& about, const at::Tensor& table, std::mt19937& random) {
  std::vector<Gradients> steps(3);
  for (Gradients& gradients : steps) {
    for (int replica = 0; replica < 3; ++replica) {
      gradients.push_back(random_gradient(table, replica == 1 ? random() % 2 : about.rows_per_gradient, random));
    }
  }
  return steps;
}

/// Largest difference in units of what the table's dtype can tell apart.
void expect_near(const at::Tensor& value, const at::Tensor& expected, const char* what) {
  const at::Tensor wide = expected.to(at::kDouble);
  const double unit = value.scalar_type() == at::kDouble  ? 1e-13
                      : value.scalar_type() == at::kFloat ? 2e-6
                      : value.scalar_type() == at::kHalf  ? 1e-3
                                                          : 8e-3;
  EXPECT_LE(((value.to(at::kDouble) - wide).abs() / (1 + wide.abs())).max().item<double>(), unit) << what;
}

/// Runs all steps with an optimizer of LibTorch on dense gradients, on the table in the type that is computed in.
template <class O, class Options>
at::Tensor dense_reference(const at::Tensor& table, const std::vector<Gradients>& steps, const Options& options) {
  at::Tensor reference = table.detach().to(table.scalar_type() == at::kDouble ? at::kDouble : at::kFloat, false, true);
  O optimizer(std::vector<at::Tensor>{reference}, options);
  for (const Gradients& gradients : steps) {
    reference.mutable_grad() = dense_sum(gradients, table);
    optimizer.step();
    reference.copy_(reference.to(table.scalar_type()));
  }
  return reference;
}

class RowUpdateTest : public ::testing::Test {
 protected:
  void SetUp() override { at::manual_seed(5); }
  std::mt19937 random{5};
};

template <class O, class Options>
void expect_same_as_dense(const Options& options, std::mt19937& random) {
  for (const Case& about : cases()) {
    const at::Tensor before = random_table(about);
    const auto steps = random_steps(about, before, random);
    const at::Tensor expected = dense_reference<O>(before, steps, options);
    for (int num_owners = 1; num_owners <= 4; num_owners += 3) {
      at::Tensor table = before.detach().clone().requires_grad_();
      Owners owners(table, num_owners, 1, maker<O>(options));
      for (const Gradients& gradients : steps) owners.apply(gradients, options);
      expect_near(table.detach(), expected, c10::str(about.dtype, about.sizes, " owners=", num_owners).c_str());
    }
  }
}

TEST_F(RowUpdateTest, SgdIsThatOfTheDenseGradient) { expect_same_as_dense<optim::SGD>(optim::SGDOptions(0.3), random); }

TEST_F(RowUpdateTest, AdagradIsThatOfTheDenseGradient) {
  expect_same_as_dense<optim::Adagrad>(optim::AdagradOptions(0.3).lr_decay(0.1), random);
}

TEST_F(RowUpdateTest, AdagradBeginsEveryRowWithTheInitialAccumulator) {
  expect_same_as_dense<optim::Adagrad>(optim::AdagradOptions(0.3).initial_accumulator_value(0.7), random);
}

/// Adam as PyTorch's SparseAdam applies it: only rows that gradients name, with the table's number of steps.
TEST_F(RowUpdateTest, AdamIsLazy) {
  const double lr = 0.1, beta1 = 0.9, beta2 = 0.99, eps = 1e-8;
  const auto options = optim::AdamOptions(lr).betas({beta1, beta2}).eps(eps);
  for (const Case& about : cases()) {
    at::Tensor table = random_table(about);
    const auto steps = random_steps(about, table, random);
    at::Tensor expected = table.detach().to(at::kDouble);
    at::Tensor mean = at::zeros_like(expected);
    at::Tensor square = at::zeros_like(expected);
    Owners owners(table, 2, 1, maker<optim::Adam>(options));
    for (size_t step = 0; step < steps.size(); ++step) {
      owners.apply(steps[step], options);
      const at::Tensor rows = touched_rows(steps[step], table).nonzero().flatten();
      const at::Tensor gradient = dense_sum(steps[step], table).to(at::kDouble).index_select(0, rows);
      mean.index_copy_(0, rows, mean.index_select(0, rows) * beta1 + gradient * (1 - beta1));
      square.index_copy_(0, rows, square.index_select(0, rows) * beta2 + gradient * gradient * (1 - beta2));
      const auto t = static_cast<double>(step + 1);
      const at::Tensor root = (square.index_select(0, rows) / (1 - std::pow(beta2, t))).sqrt() + eps;
      expected.index_add_(0, rows, mean.index_select(0, rows) / (1 - std::pow(beta1, t)) / root, -lr);
      expected = expected.to(table.scalar_type()).to(at::kDouble);
    }
    // The first gradients are so small in places that the quotient magnifies what was rounded.
    expect_near(table.detach(), expected, c10::str(about.dtype, about.sizes).c_str());
  }
}

/// Where every step names every row, a lazy optimizer is the usual one, whatever its options.
template <class O, class Options>
void expect_same_where_all_rows_are_touched(const Options& options) {
  const at::Tensor before = at::randn({130, 5});
  std::vector<Gradients> steps(5);
  for (Gradients& gradients : steps) {
    for (int replica = 0; replica < 2; ++replica) {
      gradients.push_back(sparse(at::randperm(130, at::kLong), at::randn({130, 5}), before.sizes()));
    }
  }
  at::Tensor table = before.clone();
  Owners owners(table, 3, 1, maker<O>(options));
  for (const Gradients& gradients : steps) owners.apply(gradients, options);
  expect_near(table, dense_reference<O>(before, steps, options), typeid(O).name());
}

TEST_F(RowUpdateTest, AllOptionsAreLibTorchs) {
  using optim::AdamOptions, optim::AdamWOptions, optim::RMSpropOptions, optim::SGDOptions;
  expect_same_where_all_rows_are_touched<optim::SGD>(SGDOptions(0.1).weight_decay(0.2));
  expect_same_where_all_rows_are_touched<optim::SGD>(SGDOptions(0.1).momentum(0.8).dampening(0.3));
  expect_same_where_all_rows_are_touched<optim::SGD>(SGDOptions(0.1).momentum(0.8).nesterov(true).weight_decay(0.1));
  expect_same_where_all_rows_are_touched<optim::Adam>(AdamOptions(0.1).amsgrad(true).weight_decay(0.1));
  expect_same_where_all_rows_are_touched<optim::AdamW>(AdamWOptions(0.1).weight_decay(0.3));
  expect_same_where_all_rows_are_touched<optim::RMSprop>(RMSpropOptions(0.1).momentum(0.5).centered(true));
  expect_same_where_all_rows_are_touched<optim::RMSprop>(RMSpropOptions(0.1).weight_decay(0.1));
}

TEST_F(RowUpdateTest, MomentumAndDecayActOnTouchedRowsOnly) {
  const auto options = optim::SGDOptions(0.1).momentum(0.5).weight_decay(0.1);
  at::Tensor table = at::ones({4, 2});
  Owners owners(table, 1, 1, maker<optim::SGD>(options));
  owners.apply({sparse({1, 2}, at::ones({2, 2}), {4, 2})}, options);
  const at::Tensor after_one = table.clone();
  owners.apply({sparse({2}, at::ones({1, 2}), {4, 2})}, options);
  EXPECT_TRUE(table[0].equal(at::ones({2})));
  EXPECT_TRUE(table[1].equal(after_one[1]));
  const double first = 1 - 0.1 * (1 + 0.1 * 1);
  EXPECT_NEAR(after_one[2][0].item<double>(), first, 1e-6);
  EXPECT_NEAR(table[2][0].item<double>(), first - 0.1 * (0.5 * 1.1 + 1 + 0.1 * first), 1e-6);
}

TEST_F(RowUpdateTest, OptionsMayChangeBetweenSteps) {
  const at::Tensor before = at::randn({70, 3});
  const Gradients gradients{sparse(at::arange(70), at::randn({70, 3}), {70, 3})};
  at::Tensor table = before.clone();
  at::Tensor reference = before.clone();
  auto options = optim::SGDOptions(0.1);
  Owners owners(table, 2, 1, maker<optim::SGD>(options));
  optim::SGD optimizer(std::vector<at::Tensor>{reference}, options);
  for (int step = 0; step < 5; ++step) {
    options.lr(0.1 / (step + 1)).momentum(step < 2 ? 0 : 0.9).dampening(0.5).weight_decay(step == 4 ? 0.1 : 0);
    owners.apply(gradients, options);
    optimizer.param_groups()[0].set_options(std::make_unique<optim::SGDOptions>(options));
    reference.mutable_grad() = dense_sum(gradients, table);
    optimizer.step();
    expect_near(table, reference, c10::str("step ", step).c_str());
  }
}

/// Runs the same steps with all numbers of owners and threads; each result, and that of a copy, must be the first one.
template <class O, class Options>
void expect_same_bits(const Case& about, const std::vector<int>& owners, const std::vector<int>& threads,
                      const Options& options, std::mt19937& random) {
  const at::Tensor before = random_table(about).detach();
  const auto steps = random_steps(about, before, random);
  at::Tensor expected;
  for (const int num_owners : owners) {
    for (const int num_threads : threads) {
      at::Tensor table = before.clone();
      at::Tensor copy = before.clone();
      Owners together(table, num_owners, num_threads, maker<O>(options));
      for (const Gradients& gradients : steps) {
        together.apply(gradients, options, {static_cast<char*>(copy.data_ptr())});
      }
      if (!expected.defined()) expected = table.clone();
      EXPECT_TRUE(table.equal(expected)) << about.sizes << " owners=" << num_owners << " threads=" << num_threads;
      EXPECT_TRUE(copy.equal(expected)) << about.sizes << " owners=" << num_owners << " threads=" << num_threads;
    }
  }
}

TEST_F(RowUpdateTest, BitsDoNotDependOnOwners) {
  const std::vector<int> owners{1, 2, 3, 4};
  for (const Case& about : cases()) {
    expect_same_bits<optim::SGD>(about, owners, {1}, optim::SGDOptions(0.3), random);
    expect_same_bits<optim::Adam>(about, owners, {1}, optim::AdamOptions(0.1).amsgrad(true).weight_decay(0.01), random);
    expect_same_bits<optim::RMSprop>(about, owners, {1}, optim::RMSpropOptions(0.1).centered(true).momentum(0.3),
                                     random);
  }
}

TEST_F(RowUpdateTest, BitsDoNotDependOnThreads) {
  const Case enough_for_nine_threads{at::kFloat, {5000, 160}, 2000};
  expect_same_bits<optim::SGD>(enough_for_nine_threads, {1, 3}, {1, 3}, optim::SGDOptions(0.3), random);
  expect_same_bits<optim::Adam>(enough_for_nine_threads, {1, 3}, {1, 3}, optim::AdamOptions(0.1), random);
}

TEST_F(RowUpdateTest, DuplicatesAreAddedInTheOrderTheyCome) {
  // In float, (1e8 + 1) - 1e8 is 0, and (1e8 - 1e8) + 1 is 1.
  at::Tensor table = at::zeros({2, 1});
  const auto options = optim::SGDOptions(1);
  Owners owners(table, 2, 1, maker<optim::SGD>(options));
  const at::Tensor first = at::tensor({1e8F, 1e8F, 1.0F}).reshape({3, 1});
  const at::Tensor second = at::tensor({-1e8F, 1.0F, -1e8F}).reshape({3, 1});
  owners.apply({sparse({0, 1, 0}, first, {2, 1}), sparse({1, 1, 0}, second, {2, 1})}, options);
  EXPECT_EQ(table[0].item<float>(), 0);
  EXPECT_EQ(table[1].item<float>(), -1);
}

TEST_F(RowUpdateTest, NarrowTypesAreRoundedOnce) {
  at::Tensor table = at::ones({1, 1}, at::kBFloat16);
  const auto options = optim::SGDOptions(1);
  Owners owners(table, 1, 1, maker<optim::SGD>(options));
  // Each of them is lost when it is added to 1 alone.
  owners.apply({sparse(std::vector<int64_t>(8, 0), at::full({8, 1}, -1.0 / 512, at::kBFloat16), {1, 1})}, options);
  EXPECT_EQ(table.item<double>(), 1 + 8.0 / 512);
}

TEST_F(RowUpdateTest, CopiesGetTheRowsAndNothingElse) {
  at::Tensor table = at::zeros({200, 2});
  at::Tensor copy = at::full({200, 2}, 7.0);
  auto* const address = static_cast<char*>(copy.data_ptr());
  const auto options = optim::SGDOptions(1);
  Owners owners(table, 2, 1, maker<optim::SGD>(options));
  const Gradients gradients{sparse({3, 150, 3}, at::ones({3, 2}), {200, 2})};
  owners.apply(gradients, options, {address, static_cast<char*>(table.data_ptr()), address});
  EXPECT_EQ(owners.bytes_moved(), (3 + 2 * 3) * 2 * 4) << "three gradients; two rows read once and written twice";
  at::Tensor expected = at::full({200, 2}, 7.0);
  expected[3].fill_(-2);
  expected[150].fill_(-1);
  EXPECT_TRUE(copy.equal(expected));
  EXPECT_EQ(table.sum().item<float>(), -6);
}

TEST_F(RowUpdateTest, TakesGradientsAsTheyCome) {
  const std::array<int64_t, 2> sizes{9, 4};
  const at::Tensor rows = at::tensor({8, 2, 2}, at::kLong);
  const std::vector<at::Tensor> values{
      at::full({1, 1}, 3.0).expand({3, 4}), at::arange(4).to(at::kFloat).expand({3, 4}),
      at::arange(12).to(at::kFloat).reshape({4, 3}).t(), at::arange(24).to(at::kFloat).reshape({3, 8}).narrow(1, 2, 4)};
  for (const at::Tensor& value : values) {
    at::Tensor table = at::zeros(sizes);
    const auto options = optim::SGDOptions(1);
    Owners owners(table, 1, 1, maker<optim::SGD>(options));
    const Gradients gradients{sparse(rows, value, sizes)};
    owners.apply(gradients, options);
    EXPECT_TRUE((-table).equal(dense_sum(gradients, table))) << value;
  }
}

TEST_F(RowUpdateTest, NoGradientIsNoStepAndAnEmptyOneIs) {
  const auto options = optim::AdamOptions(0.1);
  const at::Tensor nothing = sparse(std::vector<int64_t>{}, at::empty({0, 2}), {5, 2});
  const Gradients one{sparse({4}, at::ones({1, 2}), {5, 2})};
  const auto after = [&](const std::vector<Gradients>& steps) {
    at::Tensor table = at::zeros({5, 2});
    Owners owners(table, 2, 1, maker<optim::Adam>(options));
    for (const Gradients& gradients : steps) owners.apply(gradients, options);
    return table;
  };
  EXPECT_TRUE(after({{}, {at::Tensor()}, one}).equal(after({one})));
  EXPECT_FALSE(after({{nothing, nothing}, one}).equal(after({one})));
  EXPECT_TRUE(after({{nothing, at::Tensor()}}).equal(at::zeros({5, 2})));
}

TEST_F(RowUpdateTest, AWrongRowIsNamedBeforeAnythingIsWritten) {
  const auto options = optim::SGDOptions(1);
  for (const int64_t wrong : {int64_t{-1}, int64_t{500}, int64_t{1} << 40}) {
    at::Tensor table = at::zeros({500, 2});
    for (int owner = 0; owner < 2; ++owner) {
      RowUpdate update(table, owner, 2, maker<optim::SGD>(options));
      try {
        update.apply({sparse({1, 64}, at::ones({2, 2}), {500, 2}), sparse({7, wrong}, at::ones({2, 2}), {500, 2})}, {},
                     options);
        ADD_FAILURE() << "row " << wrong << " was taken";
      } catch (const c10::IndexError& error) {
        EXPECT_THAT(error.msg(), ::testing::HasSubstr(c10::str("row=", wrong, ", rows=500")));
      }
    }
    EXPECT_TRUE(table.equal(at::zeros({500, 2})));
  }
}

TEST_F(RowUpdateTest, GradientsMustFitTheTable) {
  const auto options = optim::SGDOptions(1);
  at::Tensor table = at::zeros({5, 2});
  RowUpdate update(table, 0, 1, maker<optim::SGD>(options));
  EXPECT_THROW(update.apply({at::ones({5, 2})}, {}, options), c10::ValueError);
  EXPECT_THROW(update.apply({sparse({1}, at::ones({1, 3}), {5, 3})}, {}, options), c10::ValueError);
  EXPECT_THROW(update.apply({sparse({1}, at::ones({1, 2}, at::kDouble), {5, 2})}, {}, options), c10::TypeError);
  EXPECT_THROW(RowUpdate(at::zeros({5, 2}).t(), 0, 1, maker<optim::SGD>(options)), c10::ValueError);
  EXPECT_THROW(RowUpdate(at::zeros({5, 2}, at::kInt), 0, 1, maker<optim::SGD>(options)), c10::TypeError);
  EXPECT_TRUE(table.equal(at::zeros({5, 2})));
}

class MyAdam : public optim::Adam {
  using Adam::Adam;
};

TEST_F(RowUpdateTest, KnowsFiveOptimizersAndNoneDerivedFromThem) {
  const std::vector<at::Tensor> parameters{at::zeros({1})};
  EXPECT_TRUE(RowUpdate::knows(optim::SGD(parameters, optim::SGDOptions(1))));
  EXPECT_TRUE(RowUpdate::knows(optim::Adam(parameters)));
  EXPECT_TRUE(RowUpdate::knows(optim::AdamW(parameters)));
  EXPECT_TRUE(RowUpdate::knows(optim::Adagrad(parameters)));
  EXPECT_TRUE(RowUpdate::knows(optim::RMSprop(parameters)));
  EXPECT_FALSE(RowUpdate::knows(MyAdam(parameters)));
  EXPECT_THROW(RowUpdate(at::zeros({5, 2}), 0, 1, maker<MyAdam>(optim::AdamOptions(1))), c10::ValueError);
}

int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t total = 0;
  int64_t resident = 0;
  statm >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

/// A table of which there is only what is touched.
TEST_F(RowUpdateTest, AStepCostsWhatItsRowsCost) {
  const int64_t num_rows = int64_t{400} << 20;
  const int64_t width = 64;
  const size_t bytes = static_cast<size_t>(num_rows) * width * 4;
  void* const memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) GTEST_SKIP() << "no address space of " << bytes << " bytes";
  {
    at::Tensor table = at::from_blob(memory, {num_rows, width}, at::kFloat);
    const auto options = optim::AdagradOptions(0.5).initial_accumulator_value(0.25);
    Owners owners(table, 2, 1, maker<optim::Adagrad>(options));
    const int64_t before = resident_bytes();
    const int64_t far = num_rows - 1;
    for (int step = 0; step < 3; ++step) {
      owners.apply({sparse({far, 0, num_rows / 2, far}, at::ones({4, width}), table.sizes())}, options);
    }
    EXPECT_LT(resident_bytes() - before, 64 << 20);
    double expected = 0;
    double sum = 0.25;
    for (int step = 0; step < 3; ++step) {
      sum += 4;
      expected -= 0.5 * 2 / std::sqrt(sum);
    }
    EXPECT_NEAR(table[far][width - 1].item<double>(), expected, 1e-5);
  }
  ::munmap(memory, bytes);
}

}  // namespace
}  // namespace lockstep::detail
