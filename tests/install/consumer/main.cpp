// What a user's first program needs from the installed package: a header, a symbol of the library, LibTorch.

#include <iostream>
#include <lockstep/base/reduce_op.h>
#include <lockstep/version.h>

#include <ATen/ATen.h>

int main() {
  const lockstep::ReduceOp op("sum");
  std::cout << "lockstep " << lockstep::version() << ' ' << op << ' ' << at::ones({3}).sum().item<float>() << '\n';
  return op == lockstep::ReduceOp::Sum ? 0 : 1;
}
