#pragma once

#include "lockstep/strategy/strategy.h"
#include "tests/golden/harness.h"

/// The cases of Keras's `fit`, `evaluate`, `predict` and BatchNormalization, in the topic of trainings.
namespace lockstep::golden::drivers::training {

struct Examples {
  at::Tensor x;
  at::Tensor y;
};

/// The data of the cases' `model` field: x[i][j] = ((2 i + j) mod 7) / 4, y = 2 x0 - 3 x1 + 1.
Examples make_examples(int64_t count);

/// The elements of a tensor.
std::vector<double> numbers(const at::Tensor& tensor);

/// Answers a case whose call begins with "keras_".
Json run_keras(const Case& test_case, const Strategy& strategy);

}  // namespace lockstep::golden::drivers::training
