#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "tests/golden/compare.h"
#include "tests/golden/differences/topics.h"
#include "tests/golden/drivers/keras.h"

namespace lockstep::golden::rules::training {
namespace {

constexpr const char* kTopic = "training";

using drivers::training::Examples;
using drivers::training::make_examples;
using drivers::training::numbers;

bool is_fit_or_evaluate(const Case& c) { return is_one_of(c.call, {"keras_fit", "keras_evaluate"}); }

bool has_empty_replica_error(const Case& c) { return is_fit_or_evaluate(c) && c.error_type == "InvalidArgumentError"; }

bool is_central_fit(const Case& c) {
  return is_fit_or_evaluate(c) && c.text("strategy") == "CentralStorage" && !c.has_error();
}

/// Whether the last batch is divided into unequal parts.
bool has_remainder(const Case& c) {
  const int64_t rows = c.in.at("examples").get<int64_t>() % c.in.at("batch").get<int64_t>();
  return c.call == "keras_fit" && rows != 0 && c.in.at("replicas") > 1 && !c.has_error();
}

bool normalizes(const Case& c) { return c.call == "keras_batch_norm"; }

bool has_rows_alone(const Case& c) {
  return normalizes(c) && !c.in.at("synchronized") && c.in.at("batch") == c.in.at("replicas");
}

/// Keras's `fit` and `evaluate` on one device, with the gradients by hand.
Json plain_training(const Case& c) {
  const Examples all = make_examples(c.in.at("examples"));
  const int64_t batch = c.in.at("batch");
  const double rate = c.in.at("learning_rate");
  const bool trains = c.call == "keras_fit";
  const int epochs = trains ? c.in.at("epochs").get<int>() : 1;
  at::Tensor weight = at::ones({2}, at::kDouble);
  at::Tensor bias = at::zeros({1}, at::kDouble);
  std::vector<double> losses;
  std::vector<double> errors;
  for (int epoch = 0; epoch < epochs; ++epoch) {
    double squares = 0;
    double absolute = 0;
    for (int64_t begin = 0; begin < all.x.size(0); begin += batch) {
      const int64_t end = std::min(begin + batch, all.x.size(0));
      const at::Tensor x = all.x.slice(0, begin, end).to(at::kDouble);
      const at::Tensor error = at::matmul(x, weight) + bias - all.y.slice(0, begin, end).to(at::kDouble);
      squares += error.square().sum().item<double>();
      absolute += error.abs().sum().item<double>();
      if (!trains) continue;
      weight = weight - rate * 2 * at::matmul(x.t(), error) / (end - begin);
      bias = bias - rate * 2 * error.mean();
    }
    losses.push_back(squares / all.x.size(0));
    errors.push_back(absolute / all.x.size(0));
  }
  if (!trains) return {{"loss", losses[0]}, {"mae", errors[0]}};
  return {{"loss", losses}, {"mae", errors}, {"weight", numbers(weight)}, {"bias", numbers(bias)}};
}

/// Running statistics with the rows of each batch divided into `parts`. Each of `copies` replicas has the mean of what
/// the parts have, of which one without rows keeps what it had.
Json plain_statistics(const Case& c, int64_t parts, size_t copies) {
  const at::Tensor all = make_examples(c.in.at("examples")).x.to(at::kDouble);
  const int64_t batch = c.in.at("batch");
  const double momentum = c.in.at("momentum");
  const int64_t part = (batch + parts - 1) / parts;
  at::Tensor mean = at::zeros({2}, at::kDouble);
  at::Tensor variance = at::ones({2}, at::kDouble);
  for (int64_t begin = 0; begin < all.size(0); begin += batch) {
    const at::Tensor mean_before = mean.clone();
    const at::Tensor variance_before = variance.clone();
    for (const at::Tensor& own : all.slice(0, begin, begin + batch).split(part)) {
      const double share = (1 - momentum) / static_cast<double>(parts);
      mean = mean + (own.mean(0) - mean_before) * share;
      variance = variance + (own.var(0, /*unbiased=*/true) - variance_before) * share;
    }
  }
  return {{"moving_mean", std::vector(copies, numbers(mean))},
          {"moving_variance", std::vector(copies, numbers(variance))}};
}

Json statistics(const Case& c) {
  const int64_t replicas = c.in.at("replicas");
  return plain_statistics(c, c.in.at("synchronized") ? 1 : replicas, static_cast<size_t>(replicas));
}

}  // namespace

void add(std::vector<Difference>& table) {
  table.push_back({"empty replica", kTopic, has_empty_replica_error,
                   "fit and evaluate fail where a replica gets no rows (InvalidArgumentError of add_n)",
                   "Trainer counts the rows that there are: the numbers of one device",
                   "every row of a dataset counts once, also in the last batch", expect_value(plain_training)});
  table.push_back({"numbers of central storage", kTopic, is_central_fit,
                   "losses and metrics are those of a part of the rows, and remainders are weighted by replica",
                   "losses, metrics and parameters are those of one device", "the numbers are wrong",
                   expect_value(plain_training)});
  table.push_back({"remainder", kTopic, has_remainder,
                   "the last, smaller batch is weighted by replica, so that parameters depend on their number",
                   "each row counts alike: the parameters of one device for every number of replicas",
                   "a row should not count more because its replica has fewer", expect_value(plain_training)});
  table.push_back({"variance of one row", kTopic, has_rows_alone,
                   "BatchNormalization that is not synchronized takes a variance of 0 for a single row",
                   "LibTorch's error: expected more than 1 value per channel", "one row has no variance",
                   expect_error("Error", "more than 1 value per channel")});
  table.push_back(
      {"statistics of batch normalization", kTopic, normalizes,
       "the moving variance is that of the rows, each copy keeps its own unless synchronized, and a replica "
       "without rows or central storage is an error",
       "as LibTorch's BatchNorm: the unbiased variance; all copies have the mean of the replicas, "
       "or with SyncBatchNorm the statistics of the whole batch, under every strategy",
       "models and checkpoints are those of LibTorch and PyTorch", expect_value(statistics)});
}

}  // namespace lockstep::golden::rules::training
