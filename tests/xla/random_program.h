#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <ATen/ATen.h>

namespace lockstep::xla::test {

/// What is done to an input before a program gets it: moved to a device, and perhaps cut over its logical devices.
using PlaceInput = std::function<at::Tensor(const at::Tensor&)>;

/// Inputs of all random programs, on the CPU: float64, of sizes that 2, 3 and 4 divide.
std::vector<at::Tensor> random_program_inputs();

/// Runs the program that `seed` determines: some operations, each on results of those before, among them views, writes
/// through views, reductions, products, convolutions, pooling and indexing. Returns its result, one number, and the
/// gradients of the inputs.
std::vector<at::Tensor> run_random_program(uint32_t seed, const std::vector<at::Tensor>& inputs,
                                           const PlaceInput& place);

}  // namespace lockstep::xla::test
