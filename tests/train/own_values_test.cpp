#include "lockstep/train/own_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "tests/support/workers_as_threads.h"

namespace lockstep::detail {
namespace {

/// What a worker has opened: values of its own, and some that all have.
OpenedState opened_by(int worker) {
  OpenedState opened;
  opened.state.set("model.weight", torch::full({4}, 7.0));
  opened.state.set("model.frozen", torch::full({5}, 3.0));
  opened.state.set("model.mean", torch::full({2, 3}, worker));
  opened.state.set("user.count", worker);
  opened.state.set("user.text", std::string(static_cast<size_t>(worker), 'x'));
  opened.state.set(worker == 0 ? "user.of_first" : "user.of_second", true);
  opened.own = {"model.frozen", "model.mean", "user.count", "user.text",
                worker == 0 ? "user.of_first" : "user.of_second"};
  return opened;
}

TEST(OwnValues, AllWorkersTakeThoseOfTheFirst) {
  const auto errors = tests::run_worker_ranks(tests::EngineKind::Messages, 3, 1, [](const comm::Group& workers) {
    OpenedState opened = opened_by(workers.rank());
    const StateTensor frozen = opened.state.tensor("model.frozen");
    take_first_workers(workers, opened, hashes_of_own(opened));
    const State& state = opened.state;
    EXPECT_TRUE(torch::equal(state.tensor("model.weight").read(), torch::full({4}, 7.0)));
    EXPECT_TRUE(torch::equal(state.tensor("model.mean").read(), torch::full({2, 3}, 0)));
    EXPECT_EQ(state.integer("user.count"), 0);
    EXPECT_EQ(state.text("user.text"), "");
    EXPECT_TRUE(state.has("user.of_first"));
    EXPECT_FALSE(state.has("user.of_second"));
    EXPECT_EQ(state.size(), 6U);
    // What is equal on all workers is not sent.
    EXPECT_EQ(state.tensor("model.frozen").pieces[0].values.data_ptr(), frozen.pieces[0].values.data_ptr());
  });
  for (const auto& error : errors) EXPECT_EQ(error, nullptr);
}

TEST(OwnValues, NothingIsChangedWhereThereAreNone) {
  const auto errors = tests::run_worker_ranks(tests::EngineKind::Messages, 2, 1, [](const comm::Group& workers) {
    OpenedState opened = opened_by(workers.rank());
    opened.own.clear();
    take_first_workers(workers, opened, hashes_of_own(opened));
    EXPECT_EQ(opened.state.integer("user.count"), workers.rank());
    EXPECT_EQ(opened.state.size(), 6U);
  });
  for (const auto& error : errors) EXPECT_EQ(error, nullptr);
}

}  // namespace
}  // namespace lockstep::detail
