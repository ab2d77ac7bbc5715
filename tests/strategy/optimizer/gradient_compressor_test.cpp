#include "lockstep/strategy/optimizer/exchange/gradient_compressor.h"

#include <limits>
#include <mutex>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "tests/support/workers_as_threads.h"

namespace lockstep::detail {
namespace {

using comm::Group;
using compression::BFloat16;
using compression::Float16;
using compression::PowerSGD;
using compression::TopK;
using Tensors = std::vector<at::Tensor>;

struct WorkerCounts {
  int workers = 2;
  int replicas = 1;
};
constexpr WorkerCounts kCounts[] = {{2, 1}, {3, 1}, {2, 2}, {3, 2}};

const std::vector<GradientCompression>& all_compressions() {
  static const std::vector<GradientCompression> all{
      Float16{},
      BFloat16{},
      PowerSGD{.rank = 2, .start_step = 0},
      PowerSGD{.rank = 1, .start_step = 2, .error_feedback = false, .seed = 3},
      TopK{.fraction = 0.2},
      TopK{.fraction = 0.3, .error_feedback = false}};
  return all;
}

/// The gradients of a rank in a step: a matrix, a vector, a tensor of doubles, integers, and nothing.
Tensors gradients_of(int rank, int step) {
  const auto rough = [&](at::IntArrayRef shape, at::ScalarType dtype) {
    const at::Tensor ramp = at::arange(c10::multiply_integers(shape), at::kDouble);
    return at::sin(ramp * 0.7 + rank * 1.3 + step * 0.1).mul(at::cos(ramp * 0.11 + rank)).to(dtype).reshape(shape);
  };
  return {rough({6, 5}, at::kFloat), rough({7}, at::kFloat), rough({3, 2, 4}, at::kDouble),
          (rough({4}, at::kDouble) * 9).to(at::kInt), at::zeros({0, 3})};
}

std::vector<GradientToSum> numbered(const Tensors& tensors) {
  std::vector<GradientToSum> gradients;
  for (size_t p = 0; p < tensors.size(); ++p) gradients.push_back({p, tensors[p]});
  return gradients;
}

/// Calls `body` on every rank of workers that exchange messages; the first error is thrown here.
void run_workers(WorkerCounts counts, const std::function<void(const WorkerSums&)>& body) {
  for (const auto& error :
       tests::run_worker_ranks(tests::EngineKind::Messages, counts.workers, counts.replicas,
                               [&](const Group& group) { body(WorkerSums(group, counts.replicas)); })) {
    if (error) std::rethrow_exception(error);
  }
}

at::Tensor exact_sum(WorkerCounts counts, size_t parameter, int step) {
  at::Tensor sum;
  for (int rank = 0; rank < counts.workers * counts.replicas; ++rank) {
    const at::Tensor own = gradients_of(rank, step)[parameter];
    sum = sum.defined() ? sum + own : own.clone();
  }
  return sum;
}

TEST(GradientCompressor, AllReplicasGetTheSameBits) {
  for (const WorkerCounts counts : kCounts) {
    for (const GradientCompression& compression : all_compressions()) {
      run_workers(counts, [&](const WorkerSums& workers) {
        const auto compressor = make_compressor(compression, 5);
        for (int step = 0; step < 4; ++step) {
          const Tensors own = gradients_of(workers.all().rank(), step);
          compressor->sum(workers, numbered(own));
          for (size_t p = 0; p < own.size(); ++p) {
            const at::Tensor first = workers.all().broadcast(own[p], 0);
            EXPECT_TRUE(at::equal(first, own[p])) << compression << ", parameter " << p << ", step " << step;
          }
          EXPECT_TRUE(at::equal(own[3], exact_sum(counts, 3, step))) << "integers are not compressed";
        }
      });
    }
  }
}

TEST(GradientCompressor, NarrowTypesRoundTheWorkersSumsAndTheirSumOnce) {
  for (const WorkerCounts counts : kCounts) {
    for (const bool is_half : {true, false}) {
      const auto dtype = is_half ? at::kHalf : at::kBFloat16;
      run_workers(counts, [&](const WorkerSums& workers) {
        const GradientCompression compression = is_half ? GradientCompression(Float16{}) : BFloat16{};
        const Tensors own = gradients_of(workers.all().rank(), 0);
        make_compressor(compression, own.size())->sum(workers, numbered(own));
        for (const size_t p : {0, 1, 2}) {
          Tensors of_workers;
          for (int worker = 0; worker < counts.workers; ++worker) {
            at::Tensor sum = gradients_of(worker * counts.replicas, 0)[p];
            for (int l = 1; l < counts.replicas; ++l) sum = sum + gradients_of(worker * counts.replicas + l, 0)[p];
            of_workers.push_back(sum.to(dtype).to(at::kFloat));
          }
          at::Tensor wanted = of_workers[0] + of_workers[1];
          if (counts.workers > 2) wanted = wanted + of_workers[2];
          EXPECT_TRUE(at::equal(own[p], wanted.to(dtype).to(own[p].scalar_type()))) << "parameter " << p;
        }
      });
    }
  }
}

TEST(GradientCompressor, MatricesOfLowRankAreSentExactly) {
  for (const WorkerCounts counts : kCounts) {
    run_workers(counts, [&](const WorkerSums& workers) {
      const auto compressor = make_compressor(PowerSGD{.rank = 2, .start_step = 0}, 1);
      const auto of_rank = [](int rank) {
        const at::Tensor a = at::arange(9, at::kDouble).sin(), b = at::arange(8, at::kDouble).cos();
        return (at::outer(a, b) * (rank + 1) + at::outer(b.sum() * a.flip(0), b.square()) * (rank - 1.5))
            .to(at::kFloat);
      };
      at::Tensor own = of_rank(workers.all().rank());
      at::Tensor wanted = at::zeros_like(own);
      for (int rank = 0; rank < workers.all().size(); ++rank) wanted += of_rank(rank);
      compressor->sum(workers, {{0, own}});
      EXPECT_TRUE(at::allclose(own, wanted, 1e-4, 1e-4)) << own << wanted;
    });
  }
}

TEST(GradientCompressor, StartStep) {
  run_workers({2, 1}, [](const WorkerSums& workers) {
    const auto compressor = make_compressor(PowerSGD{.rank = 1, .start_step = 2}, 5);
    for (int step = 0; step < 4; ++step) {
      const Tensors own = gradients_of(workers.all().rank(), step);
      compressor->sum(workers, numbered(own));
      EXPECT_EQ(at::equal(own[0], exact_sum({2, 1}, 0, step)), step < 2) << "step " << step;
      EXPECT_TRUE(at::equal(own[1], exact_sum({2, 1}, 1, step))) << "vectors are not compressed";
    }
  });
}

/// What is left out of the sums over all steps, relative to them, after `extra` steps with gradients of zeros.
double left_out_after(WorkerCounts counts, const GradientCompression& compression, int extra) {
  std::mutex mutex;
  double largest = 0;
  run_workers(counts, [&](const WorkerSums& workers) {
    const auto compressor = make_compressor(compression, 5);
    at::Tensor got = at::zeros({6, 5}, at::kDouble), wanted = at::zeros({6, 5}, at::kDouble);
    for (int step = 0; step < 30 + extra; ++step) {
      Tensors own = gradients_of(workers.all().rank(), step);
      if (step >= 30) own[0].zero_();
      compressor->sum(workers, numbered(own));
      got += own[0];
      if (step < 30) wanted += exact_sum(counts, 0, step);
    }
    const std::lock_guard lock(mutex);
    largest = std::max(largest, ((got - wanted).norm() / wanted.norm()).item<double>());
  });
  return largest;
}

TEST(GradientCompressor, ErrorFeedbackMakesTheSumOverStepsRight) {
  for (const WorkerCounts counts : kCounts) {
    EXPECT_LT(left_out_after(counts, TopK{.fraction = 0.2}, 0), 0.2);
    EXPECT_LT(left_out_after(counts, TopK{.fraction = 0.2}, 5), 1e-5);  // everything has been sent
    EXPECT_GT(left_out_after(counts, TopK{.fraction = 0.2, .error_feedback = false}, 5), 0.1);
    EXPECT_LT(left_out_after(counts, PowerSGD{.rank = 1, .start_step = 0}, 0), 0.2);
    EXPECT_LT(left_out_after(counts, PowerSGD{.rank = 1, .start_step = 0}, 60), 1e-3);
    EXPECT_GT(left_out_after(counts, PowerSGD{.rank = 1, .start_step = 0, .error_feedback = false}, 60), 0.01);
  }
}

TEST(GradientCompressor, AnUnusedSumIsPutBack) {
  run_workers({2, 1}, [](const WorkerSums& workers) {
    const auto compressor = make_compressor(TopK{.fraction = 0.5}, 1);
    at::Tensor own = at::tensor({3.0F, 1.0F});
    compressor->sum(workers, {{0, own}});
    EXPECT_TRUE(at::equal(own, at::tensor({6.0F, 0.0F})));
    own.zero_();
    compressor->sum(workers, {{0, own}});
    EXPECT_TRUE(at::equal(own, at::tensor({0.0F, 2.0F})));
    compressor->put_back(0, own, workers.num_workers());
    own.zero_();
    compressor->sum(workers, {{0, own}});
    EXPECT_TRUE(at::equal(own, at::tensor({0.0F, 2.0F})));
  });
}

TEST(GradientCompressor, AGradientThatIsNoNumberDoesNotStay) {
  for (const GradientCompression& compression : all_compressions()) {
    run_workers({2, 1}, [&](const WorkerSums& workers) {
      const auto compressor = make_compressor(compression, 5);
      for (int step = 0; step < 8; ++step) {
        Tensors own = gradients_of(workers.all().rank(), step);
        if (step == 3 && workers.worker() == 1) own[0].fill_(std::numeric_limits<float>::quiet_NaN());
        compressor->sum(workers, numbered(own));
        EXPECT_EQ(own[0].isfinite().all().item<bool>(), step != 3) << compression << ", step " << step;
      }
    });
  }
}

TEST(GradientCompressor, AZeroGradientIsFollowedByOthers) {
  run_workers({2, 1}, [](const WorkerSums& workers) {
    const auto compressor = make_compressor(PowerSGD{.rank = 2, .start_step = 0}, 1);
    at::Tensor own = at::zeros({6, 5});
    compressor->sum(workers, {{0, own}});
    EXPECT_TRUE(at::equal(own, at::zeros({6, 5})));
    own.fill_(2);
    compressor->sum(workers, {{0, own}});
    EXPECT_TRUE(at::allclose(own, at::full({6, 5}, 4.0F)));
  });
}

TEST(GradientCompressor, OrthonormalColumns) {
  const at::Tensor matrix = at::arange(12, at::kFloat).square().sin().view({4, 3});
  const at::Tensor columns = orthonormal_columns(matrix);
  EXPECT_TRUE(at::allclose(columns.t().mm(columns), at::eye(3), 1e-5, 1e-6));
  EXPECT_TRUE(at::allclose(columns.mm(columns.t().mm(matrix)), matrix, 1e-5, 1e-6)) << "they span the same space";
  const at::Tensor dependent = at::stack({matrix.select(1, 0), matrix.select(1, 0) * 2}, 1);
  EXPECT_TRUE(at::equal(orthonormal_columns(dependent).select(1, 1), at::zeros({4})));
}

TEST(GradientCompressor, OptionsOutOfRange) {
  EXPECT_THROW(validate(PowerSGD{.rank = 0}), c10::ValueError);
  EXPECT_THROW(validate(PowerSGD{.start_step = -1}), c10::ValueError);
  EXPECT_THROW(validate(TopK{.fraction = 0}), c10::ValueError);
  EXPECT_THROW(validate(TopK{.fraction = 1.5}), c10::ValueError);
  EXPECT_EQ(c10::str(GradientCompression(PowerSGD{.rank = 2})),
            "PowerSGD(rank=2, start_step=10, error_feedback=true, seed=0)");
  EXPECT_EQ(make_compressor(compression::None{}, 1), nullptr);
}

}  // namespace
}  // namespace lockstep::detail
