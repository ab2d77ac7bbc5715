// A tensor of a module under two names is saved once and found by both.

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include "lockstep/lockstep.h"
#include "lockstep/state/checkpoint_folder.h"
#include "lockstep/state/load_plan.h"
#include "tests/support/test_folder.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

/// Weights of a language model whose last layer is its table of words; not tied: two tensors.
struct WordWeightsImpl : torch::nn::Module {
  explicit WordWeightsImpl(bool is_tied) {
    words = register_parameter("words", torch::randn({1000, 64}));
    out = register_parameter("out", is_tied ? words : torch::zeros({1000, 64}));
  }
  torch::Tensor words;
  torch::Tensor out;
};
TORCH_MODULE(WordWeights);

constexpr int64_t kTableBytes = 1000 * 64 * 4;

template <class Model>
void save_model(const Model& model, const std::string& folder) {
  CheckpointManager manager(Checkpoint{{"model", model}}, folder);
  manager.save(1);
  manager.wait();
}

void expect_written_once(const std::string& checkpoint, const torch::Tensor& words) {
  EXPECT_LT(static_cast<int64_t>(fs::file_size(checkpoint + "/part_00000_of_00001.safetensors")), 2 * kTableBytes);
  const State state = detail::verify_checkpoint(checkpoint).state;
  EXPECT_TRUE(torch::equal(state.tensor("model.words").read(), words));
  EXPECT_TRUE(torch::equal(state.tensor("model.out").read(), words));
}

TEST(TiedWeights, AreWrittenOnceAndRestored) {
  const tests::TestFolder folder;
  WordWeights model(true);
  const torch::Tensor words = model->words.detach().clone();
  save_model(model, folder.path());
  expect_written_once(folder / "step_0000000001", words);
  WordWeights other(true);
  CheckpointManager restored(Checkpoint{{"model", other}}, folder.path());
  EXPECT_EQ(restored.restore_latest(), 1);
  EXPECT_TRUE(torch::equal(other->words, words));
  EXPECT_TRUE(other->words.is_same(other->out));
}

TEST(TiedWeights, AModuleOfAStrategyHasThemOnce) {
  const tests::TestFolder folder;
  MirroredStrategy strategy({"CPU:0"});
  auto scope = strategy.scope();
  const auto model = module<WordWeights>(true);
  save_model(model, folder.path());
  expect_written_once(folder / "step_0000000001", model->words.detach());
}

TEST(TiedWeights, ModelsWithTwoTensorsLoadThemAndBack) {
  const tests::TestFolder folder;
  WordWeights tied(true);
  const torch::Tensor words = tied->words.detach().clone();
  save_model(tied, folder.path());
  WordWeights two(false);
  ASSERT_TRUE(load_state(two, load_file(folder / "step_0000000001").below("model")).complete());
  EXPECT_TRUE(torch::equal(two->words, words));
  EXPECT_TRUE(torch::equal(two->out, words));
  EXPECT_FALSE(two->words.is_same(two->out));
  save_model(two, folder / "two");
  WordWeights again(true);
  ASSERT_TRUE(load_state(again, load_file(folder / "two/step_0000000001").below("model")).complete());
  EXPECT_TRUE(torch::equal(again->words, words));
  {
    const torch::NoGradGuard no_grad;
    two->out.add_(1);
  }
  EXPECT_THROW(load_state(again, state_of(two)), c10::ValueError);
}

TEST(TiedWeights, SafetensorsFilesHaveAllNames) {
  const tests::TestFolder folder;
  WordWeights tied(true);
  save_safetensors(state_of(tied), folder / "weights.safetensors");
  const State state = load_file(folder / "weights.safetensors");
  EXPECT_TRUE(torch::equal(state.tensor("words").read(), tied->words.detach()));
  EXPECT_TRUE(torch::equal(state.tensor("out").read(), tied->words.detach()));
}

}  // namespace
}  // namespace lockstep
