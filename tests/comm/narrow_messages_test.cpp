// Sums of 16-bit numbers between workers: the bits of one process, and no more bytes than for float32.

#include <cstring>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/support/ranks_as_threads.h"
#include "tests/support/workers_as_threads.h"

namespace lockstep::comm {
namespace {

using lockstep::tests::EngineKind;
using lockstep::tests::Mail;

std::vector<at::Tensor> narrow_inputs(int rank, at::ScalarType dtype) {
  const auto ramp = at::arange(5003, at::kFloat);
  const auto rough = at::sin(ramp * 0.7 + rank * 1.3) * at::exp(at::cos(ramp * 0.11 + rank) * 3);
  return {rough.slice(0, 0, 5001).to(dtype), rough.slice(0, 5001).to(dtype)};
}

/// What rank 0 gets, and the bytes that all workers have sent.
struct Reduced {
  std::vector<at::Tensor> values;
  size_t sent_bytes = 0;
};

Reduced reduce_between(int workers, int ranks, at::ScalarType dtype, ReduceOp op) {
  Reduced reduced;
  const auto mail = std::make_shared<Mail>();
  const auto errors = lockstep::tests::run_worker_ranks(
      EngineKind::Messages, workers, ranks,
      [&](const Group& group) {
        auto mine = group.all_reduce(narrow_inputs(group.rank(), dtype), op);
        if (group.rank() == 0) reduced.values = std::move(mine);
      },
      std::chrono::seconds(60), mail);
  for (const auto& error : errors) EXPECT_EQ(error, nullptr);
  reduced.sent_bytes = mail->sent_bytes;
  return reduced;
}

TEST(NarrowMessages, HaveTheBitsOfOneProcessAndTakeNoMoreThanFloats) {
  for (const auto& [workers, ranks] : {std::pair{2, 1}, {2, 2}, {3, 2}, {2, 3}, {2, 4}, {3, 4}, {2, 8}}) {
    const size_t float_bytes = reduce_between(workers, ranks, at::kFloat, ReduceOp::Sum).sent_bytes;
    for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16}) {
      for (const ReduceOp op : {ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Max, ReduceOp::Product}) {
        SCOPED_TRACE(c10::str(workers, " workers, ", ranks, " ranks each, ", op, ", ", dtype));
        std::vector<at::Tensor> wanted;
        lockstep::tests::run_groups(workers * ranks, [&, dtype = dtype](const Group& group) {
          auto mine = group.all_reduce(narrow_inputs(group.rank(), dtype), op);
          if (group.rank() == 0) wanted = std::move(mine);
        });
        const Reduced reduced = reduce_between(workers, ranks, dtype, op);
        ASSERT_EQ(reduced.values.size(), wanted.size());
        for (size_t i = 0; i < wanted.size(); ++i) {
          EXPECT_EQ(std::memcmp(reduced.values[i].data_ptr(), wanted[i].data_ptr(), wanted[i].nbytes()), 0);
        }
        EXPECT_LE(reduced.sent_bytes, float_bytes);
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::comm
