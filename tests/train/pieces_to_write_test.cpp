#include "lockstep/train/pieces_to_write.h"

#include <cstring>
#include <map>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "lockstep/state/flip_bits.h"
#include "lockstep/train/copy_pieces.h"

namespace lockstep::detail {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> names_of(const std::vector<HeldPiece>& pieces) {
  std::vector<std::string> names;
  for (const HeldPiece& piece : pieces) names.push_back(piece.name);
  return names;
}

TEST(PiecesToWrite, OneWorkerWritesEverything) {
  State state;
  state.set("weight", torch::arange(6));
  state.set("steps", 3);
  const auto pieces = pieces_to_write({{"model", state, true}}, {});
  ASSERT_EQ(pieces.size(), 1U);
  EXPECT_EQ(pieces[0].name, "model.weight");
  EXPECT_EQ(pieces[0].end, 6);
  EXPECT_TRUE(torch::equal(pieces[0].values, torch::arange(6)));
}

TEST(PiecesToWrite, WorkersDivideWhatAllHoldAndEachElementIsWrittenOnce) {
  std::mt19937 random(3);
  for (int num_workers = 1; num_workers <= 5; ++num_workers) {
    State state;
    std::map<std::string, int64_t> sizes;
    int64_t total = 0;
    for (int i = 0; i < 12; ++i) {
      const int64_t size = i % 3 == 0 ? static_cast<int64_t>(random() % 1'500'000) : static_cast<int64_t>(random() % 9);
      const std::string name = "t" + std::to_string(i);
      state.set(name, torch::empty({size}));
      sizes["model." + name] = size;
      total += 4 * size;
    }
    std::map<std::string, int64_t> next;
    for (int worker = 0; worker < num_workers; ++worker) {
      int64_t bytes = 0;
      for (const HeldPiece& piece : pieces_to_write({{"model", state, true}}, {worker, num_workers})) {
        EXPECT_EQ(piece.begin, next[piece.name]) << piece.name << " of worker " << worker;
        next[piece.name] = piece.end;
        bytes += piece.num_bytes();
      }
      EXPECT_LE(bytes, total / num_workers + (int64_t{1} << 20));
    }
    for (const auto& [name, size] : sizes) EXPECT_EQ(next.count(name) == 1 ? next[name] : -1, size) << name;
  }
}

TEST(PiecesToWrite, WhatOneWorkerHoldsIsWrittenByIt) {
  StateTensor moments;
  moments.sizes = {10};
  moments.pieces = {{4, torch::ones(3)}};
  moments.gather = [] { return torch::ones(10); };
  State state;
  state.set("exp_avg", moments);
  for (int worker = 0; worker < 2; ++worker) {
    const auto pieces = pieces_to_write({{"adam", state, true}}, {worker, 2});
    ASSERT_EQ(pieces.size(), 1U);
    EXPECT_EQ(pieces[0].begin, 4);
    EXPECT_EQ(pieces[0].end, 7);
  }
}

TEST(PiecesToWrite, ATensorWithTwoNamesIsWrittenOnce) {
  StateTensor tied(torch::arange(6));
  tied.identity = std::make_shared<char>();
  State state;
  state.set("one", tied);
  state.set("two", tied);
  state.set("other", torch::arange(6));
  for (const int num_workers : {1, 2}) {
    std::vector<HeldPiece> pieces;
    for (int worker = 0; worker < num_workers; ++worker) {
      for (auto& piece : pieces_to_write({{"model", state, true}}, {worker, num_workers})) pieces.push_back(piece);
    }
    ASSERT_EQ(pieces.size(), 2U);
    EXPECT_THAT(names_of(pieces), ElementsAre("model.one", "model.other"));
    EXPECT_THAT(pieces[0].aliases, ElementsAre("model.two"));
    EXPECT_THAT(pieces[1].aliases, IsEmpty());
  }
}

TEST(PiecesToWrite, OwnValuesAreWrittenOnlyWhereAWorkerWritesAll) {
  StateTensor buffer(torch::ones(3));
  buffer.own = std::move(buffer.pieces);
  buffer.pieces.clear();
  buffer.gather = [] { return torch::zeros(3); };
  State state;
  state.set("mean", buffer);
  EXPECT_THAT(pieces_to_write({{"model", state, true}}, {1, 2}), IsEmpty());
  const auto pieces = pieces_to_write({{"model", state, true}}, {});
  ASSERT_EQ(pieces.size(), 1U);
  EXPECT_TRUE(torch::equal(pieces[0].values, torch::ones(3)));
}

TEST(PiecesToWrite, CopiesHaveTheirBitsFlipped) {
  const torch::Tensor values = torch::randn({1 << 20});
  const torch::Tensor stored = values.clone();
  flip_bits(stored, 0x3dcccccdU);
  StateTensor table(stored);
  table.pieces[0].flipped = 0x3dcccccdU;
  State state;
  state.set("sum", table);
  Staging staging;
  const auto saved = staging.copy(pieces_to_write({{"adagrad", state, true}}, {}));
  ASSERT_EQ(saved.size(), 1U);
  EXPECT_EQ(std::memcmp(saved[0].bytes, values.data_ptr(), values.nbytes()), 0);
}

TEST(PiecesToWrite, ObjectsWithoutStrategyAreTheFirstWorkers) {
  State state;
  state.set("large", torch::zeros({2 << 20}));
  state.set("small", torch::zeros({2}));
  EXPECT_THAT(names_of(pieces_to_write({{"own", state, false}}, {0, 2})), ElementsAre("own.large", "own.small"));
  EXPECT_THAT(pieces_to_write({{"own", state, false}}, {1, 2}), IsEmpty());
}

}  // namespace
}  // namespace lockstep::detail
