// Lookups of rows of large tables inside replicas on CPUs are lockstep's own: with LibTorch's values and
// gradients.

#include <torch/types.h>

#include "lockstep/lockstep.h"
#include "tests/strategy/replicas.h"

namespace lockstep::tests {
namespace {

class TableLookupTest : public ReplicasTest {
 protected:
  static constexpr int64_t kRows = 9000;
  static constexpr int64_t kColumns = 48;

  struct Looked {
    at::Tensor rows;
    at::Tensor gradient;
  };

  static Looked look_up(const at::Tensor& table, const at::Tensor& ids, int64_t padding_idx = -1,
                        bool by_freq = false) {
    at::Tensor own = table.detach().requires_grad_();
    const at::Tensor rows = torch::embedding(own, ids, padding_idx, by_freq, /*sparse=*/true);
    (rows * rows.detach()).sum().backward();
    return {rows.detach(), own.grad()};
  }

  static void expect_equal(const Looked& a, const Looked& b) {
    EXPECT_TRUE(a.rows.equal(b.rows));
    EXPECT_TRUE(a.gradient.is_sparse());
    EXPECT_TRUE(a.gradient._indices().equal(b.gradient._indices()));
    EXPECT_TRUE(a.gradient._values().equal(b.gradient._values()));
    EXPECT_EQ(a.gradient.sizes(), b.gradient.sizes());
  }
};

TEST_F(TableLookupTest, GivesLibTorchsRowsAndGradients) {
  const auto strategy = mirrored(2);
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
    const at::Tensor table = torch::randn({kRows, kColumns}).to(dtype);
    for (const at::Tensor& ids :
         {torch::randint(kRows, {5000}, torch::kLong), torch::randint(kRows, {7, 3, 50}, torch::kLong),
          torch::full({100}, kRows - 1, torch::kLong), torch::randint(kRows, {3}, torch::kLong),
          torch::randint(kRows, {400, 2}, torch::kLong).select(1, 0), torch::empty({0}, torch::kLong)}) {
      const Looked expected = look_up(table, ids);
      strategy.run([&] { expect_equal(look_up(table, ids), expected); });
    }
  }
}

TEST_F(TableLookupTest, LeavesWhatItDoesNotKnowToLibTorch) {
  const auto strategy = mirrored(2);
  const at::Tensor table = torch::randn({kRows, kColumns});
  const at::Tensor ids = torch::randint(20, {500}, torch::kLong);
  const Looked padded = look_up(table, ids, /*padding_idx=*/7);
  strategy.run([&] { expect_equal(look_up(table, ids, /*padding_idx=*/7), padded); });
  const at::Tensor dense = torch::embedding(table, ids);
  strategy.run([&] { EXPECT_TRUE(torch::embedding(table, ids).equal(dense)); });
  strategy.run([&] { EXPECT_TRUE(torch::embedding(table, ids.to(torch::kInt), -1, false, true).equal(dense)); });
}

TEST_F(TableLookupTest, NeedsNoGradient) {
  const auto strategy = mirrored(2);
  const at::Tensor table = torch::randn({kRows, kColumns}).requires_grad_();
  const at::Tensor ids = torch::randint(kRows, {500}, torch::kLong);
  strategy.run([&] {
    const at::NoGradGuard no_grad;
    const at::Tensor rows = torch::embedding(table, ids, -1, false, true);
    EXPECT_FALSE(rows.requires_grad());
    EXPECT_TRUE(rows.equal(table.index_select(0, ids)));
  });
}

TEST_F(TableLookupTest, NamesTheRowThatIsNotThere) {
  const auto strategy = mirrored(2);
  const at::Tensor table = torch::randn({kRows, kColumns});
  for (const int64_t wrong : {int64_t{-1}, kRows, int64_t{1} << 60}) {
    const at::Tensor ids = torch::zeros({500}, torch::kLong);
    ids[321] = wrong;
    EXPECT_THROW(strategy.run([&] { torch::embedding(table, ids, -1, false, true); }), c10::IndexError) << wrong;
  }
}

}  // namespace
}  // namespace lockstep::tests
