// Fine-tunes a TorchScript model, such as one that Python has saved by `torch.jit.script(model).save(file)`: its head
// is replaced by one for other classes, its body is frozen, two replicas train the head, and the result is TorchScript
// again.
//
//   build/release/bin/fine_tuning            writes fine_tuning.pt to the present folder, and removes it at the end
//
// The model that it begins with is made here: it knows the digits 0 to 4, and learns 5 to 9. Prints the accuracies on
// digits that were held back, what was trained, and whether the file gives the same answers. Fails below 0.9.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iomanip>
#include <iostream>
#include <lockstep/lockstep.h>
#include <string>
#include <utility>

#include <torch/script.h>
#include <torch/torch.h>

namespace ls = lockstep;
namespace jit = torch::jit;

constexpr int64_t kClasses = 5;
constexpr int64_t kEpochs = 15;
constexpr int64_t kTraining = 700;  // digits; the others are for testing
const std::string kFile = "fine_tuning.pt";

// A TorchScript model as a module of LibTorch. Its parameters and buffers are those of the TorchScript model, so that
// an update changes both.
struct ScriptImpl : torch::nn::Module {
  explicit ScriptImpl(jit::Module made) : script(std::move(made)) {
    for (const auto& [name, tensor] : script.named_parameters()) {
      register_parameter(plain(name), tensor, tensor.requires_grad());
    }
    for (const auto& [name, tensor] : script.named_buffers()) register_buffer(plain(name), tensor);
  }

  torch::Tensor forward(const torch::Tensor& x) { return script.forward({x}).toTensor(); }

  void train(bool on = true) override {
    torch::nn::Module::train(on);
    script.train(on);
  }

  static std::string plain(std::string name) {  // names of LibTorch have no dots
    std::replace(name.begin(), name.end(), '.', '/');
    return name;
  }

  jit::Module script;
};
TORCH_MODULE(Script);

// ---- The model

// Gives the head of a TorchScript model new weights.
void replace_head(jit::Module& script) {
  auto head = script.attr("head").toModule();
  const int64_t features = head.attr("weight").toTensor().size(1);
  head.setattr("weight", (0.1 * torch::randn({kClasses, features})).requires_grad_());
  head.setattr("bias", torch::zeros({kClasses}).requires_grad_());
}

jit::Module make_script() {
  const auto weight = [](torch::IntArrayRef sizes, double scale) { return scale * torch::randn(sizes); };
  jit::Module body("Body"), head("Head"), script("Model");
  body.register_parameter("conv1", weight({16, 1, 3, 3}, 0.4), /*is_buffer=*/false);
  body.register_parameter("conv2", weight({32, 16, 3, 3}, 0.1), /*is_buffer=*/false);
  body.define(R"(
    def forward(self, x):
        x = torch.relu(torch.conv2d(x, self.conv1, None, [1, 1], [1, 1]))
        x = torch.max_pool2d(torch.relu(torch.conv2d(x, self.conv2, None, [1, 1], [1, 1])), [2, 2])
        return torch.flatten(x, 1)
  )");
  head.register_parameter("weight", weight({kClasses, 32 * 4 * 4}, 0.05), /*is_buffer=*/false);
  head.register_parameter("bias", torch::zeros({kClasses}), /*is_buffer=*/false);
  head.define(R"(
    def forward(self, x):
        return torch.addmm(self.bias, x, self.weight.t())
  )");
  script.register_module("body", body);
  script.register_module("head", head);
  script.define(R"(
    def forward(self, x):
        return self.head.forward(self.body.forward(x))
  )");
  for (const auto& parameter : script.parameters()) parameter.requires_grad_();
  return script;
}

// ---- The training

// The digits from `first` to `first + 4`, with labels from 0.
auto digits(int64_t first) {
  const auto images = ls::data::load_npy(LOCKSTEP_EXAMPLE_DATA "/digits_images.npy").view({-1, 1, 8, 8});
  const auto labels = ls::data::load_npy(LOCKSTEP_EXAMPLE_DATA "/digits_labels.npy").to(torch::kLong) - first;
  const auto chosen = labels.ge(0) & labels.lt(kClasses);
  return ls::data::from_tensor_slices(
      std::tuple{images.index({chosen}).to(torch::kFloat) / 16, labels.index({chosen})});
}

// Trains the parameters that require gradients. Returns the model and its accuracy.
std::pair<jit::Module, double> train(const ls::Strategy& strategy, const jit::Module& script, int64_t first_digit) {
  auto scope = strategy.scope();
  auto model = ls::module_from([&] { return Script(script.deepcopy()); });  // each replica has a copy
  auto adam = ls::optimizer<torch::optim::Adam>(model, 2e-3);
  ls::Trainer trainer(strategy, model, adam, ls::losses::cross_entropy(),
                      {.metrics = {ls::metrics::sparse_categorical_accuracy("accuracy")}});
  const auto testing = digits(first_digit).skip(kTraining).batch(64);
  trainer.fit(digits(first_digit).take(kTraining).shuffle(kTraining).batch(64), {.epochs = kEpochs, .verbose = false});
  return {model->script, trainer.evaluate(testing).at("accuracy")};
}

int main() try {
  std::cout << std::fixed << std::setprecision(3);
  torch::manual_seed(1);
  ls::set_logical_devices("CPU", 2);
  const ls::MirroredStrategy strategy({"CPU:0", "CPU:1"});
  const auto [first, first_accuracy] = train(strategy, make_script(), 0);
  first.save(kFile);
  std::cout << "digits 0 to 4: accuracy " << first_accuracy << '\n';

  auto script = jit::load(kFile);
  replace_head(script);
  for (const auto& parameter : script.attr("body").toModule().parameters()) parameter.set_requires_grad(false);
  int64_t trained = 0, all = 0;
  for (const auto& parameter : script.parameters()) {
    all += parameter.numel();
    if (parameter.requires_grad()) trained += parameter.numel();
  }
  auto [second, second_accuracy] = train(strategy, script, 5);
  std::cout << "digits 5 to 9, with a new head: accuracy " << second_accuracy << '\n'
            << trained << " of " << all << " parameters were trained\n";

  second.save(kFile);
  auto loaded = jit::load(kFile);
  std::remove(kFile.c_str());
  const auto conv = [](const jit::Module& of) { return of.attr("body").toModule().attr("conv2").toTensor(); };
  const auto some = torch::rand({3, 1, 8, 8});
  const bool same_body = conv(loaded).equal(conv(first));
  const bool same_answers = loaded.forward({some}).toTensor().equal(second.forward({some}).toTensor());
  std::cout << "the body is " << (same_body ? "unchanged" : "changed") << ", the file gives "
            << (same_answers ? "the same answers" : "other answers") << std::endl;
  return same_body && same_answers && std::min(first_accuracy, second_accuracy) > 0.9 ? EXIT_SUCCESS : EXIT_FAILURE;
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return EXIT_FAILURE;
}
