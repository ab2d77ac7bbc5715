// Reductions of tensors on devices between workers, with CPU tensors in place of GPU tensors: the order of additions is
// that of one process.

#include "lockstep/comm/messages/reduce_devices.h"

#include <cstring>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/support/ranks_as_threads.h"
#include "tests/support/workers_as_threads.h"

namespace lockstep::comm {
namespace {

using lockstep::tests::Board;
using lockstep::tests::BoardJob;
using lockstep::tests::Mail;
using lockstep::tests::MailTransport;

std::vector<at::Tensor> tensors_of_rank(int rank) {
  const auto ramp = at::arange(1033, at::kDouble);
  const auto rough = at::sin(ramp * 0.7 + rank * 1.3) * at::exp(at::cos(ramp * 0.11 + rank) * 3);
  return {rough.to(at::kFloat).slice(0, 0, 600).view({20, 30}), rough.slice(0, 0, 7),
          rough.to(at::kFloat).slice(0, 600), rough.to(at::kHalf).slice(0, 0, 50), at::empty({0}, at::kFloat)};
}

bool is_same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() &&
         (a.numel() == 0 || std::memcmp(a.contiguous().data_ptr(), b.contiguous().data_ptr(), a.nbytes()) == 0);
}

std::vector<at::Tensor> in_one_process(int size, ReduceOp op) {
  std::vector<at::Tensor> results;
  lockstep::tests::run_groups(size, [&](const Group& group) {
    auto mine = group.all_reduce(tensors_of_rank(group.rank()), op);
    if (group.rank() == 0) results = std::move(mine);
  });
  return results;
}

/// Runs all ranks of all workers, each on a thread; returns the result of each rank.
std::vector<std::vector<at::Tensor>> between_workers(int num_workers, int ranks_per_worker, ReduceOp op) {
  const auto board = std::make_shared<Board>();
  const auto host_mail = std::make_shared<Mail>();
  const auto device_mail = std::make_shared<Mail>();
  const int size = num_workers * ranks_per_worker;
  std::vector<std::vector<at::Tensor>> flat(static_cast<size_t>(size));
  for (int rank = 0; rank < size; ++rank) flat[static_cast<size_t>(rank)] = flatten_by_dtype(tensors_of_rank(rank));
  std::vector<std::shared_ptr<MessageTeam>> teams;
  for (int worker = 0; worker < num_workers; ++worker) {
    const auto transport = [&](const auto& mail) {
      return std::make_shared<MailTransport>(mail, worker, num_workers, ranks_per_worker);
    };
    teams.push_back(
        std::make_shared<MessageTeam>(MessageTeam{.job = std::make_shared<BoardJob>(board, worker, num_workers),
                                                  .transport = transport(host_mail),
                                                  .device_transport = transport(device_mail),
                                                  .name = "test",
                                                  .ranks_per_worker = ranks_per_worker,
                                                  .timeout = std::chrono::seconds(60)}));
  }
  std::vector<std::vector<at::Tensor>> parts(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      const int worker = rank / ranks_per_worker;
      PeerExchange peers(teams[static_cast<size_t>(worker)], rank % ranks_per_worker);
      const CollectiveCall call{.operation = "all_reduce", .reduce_op = op};
      peers.begin(call, {});
      std::vector<const std::vector<at::Tensor>*> local;
      for (int r = 0; r < ranks_per_worker; ++r) {
        local.push_back(&flat[static_cast<size_t>(worker * ranks_per_worker + r)]);
      }
      parts[static_cast<size_t>(rank)] = reduce_parts_on_devices(peers, call, local);
    });
  }
  for (auto& thread : threads) thread.join();
  std::vector<std::vector<at::Tensor>> results;
  for (int rank = 0; rank < size; ++rank) {
    const int worker = rank / ranks_per_worker;
    std::vector<at::Tensor> whole;
    for (const at::Tensor& part : parts[static_cast<size_t>(rank)]) whole.push_back(at::empty_like(part));
    for (int from = 0; from < ranks_per_worker; ++from) {
      take_parts(*teams[static_cast<size_t>(worker)], from,
                 parts[static_cast<size_t>(worker * ranks_per_worker + from)], whole);
    }
    results.push_back(tensors_of_rank(rank));
    unflatten_by_dtype(whole, results.back());
  }
  return results;
}

TEST(ReduceDevicesTest, HasTheBitsOfOneProcess) {
  for (const auto& [workers, ranks] : {std::pair{2, 1}, {3, 1}, {2, 2}, {3, 2}, {2, 3}, {2, 4}}) {
    for (const ReduceOp op : {ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Min, ReduceOp::Max, ReduceOp::Product}) {
      SCOPED_TRACE(c10::str(workers, " workers, ", ranks, " ranks each, ", op));
      const auto wanted = in_one_process(workers * ranks, op);
      for (const auto& results : between_workers(workers, ranks, op)) {
        ASSERT_EQ(results.size(), wanted.size());
        for (size_t i = 0; i < wanted.size(); ++i) EXPECT_TRUE(is_same_bits(results[i], wanted[i])) << "tensor " << i;
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::comm
