#include "tools/train/script_network.h"

#include <torch/csrc/jit/frontend/error_report.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/serialization/import.h>

#include "lockstep/base/error.h"

namespace lockstep::tools {
namespace {

/// A TorchScript module with the tensors and submodules of ours, and no methods. That of a ScriptNetwork is its own.
torch::jit::Module script_tensors(torch::nn::Module& ours,
                                  const std::shared_ptr<torch::jit::CompilationUnit>& compilation) {
  if (auto* network = dynamic_cast<ScriptNetwork*>(&ours)) return network->present();
  torch::jit::Module script(c10::QualifiedName("__torch__.lockstep.Part"), compilation, /*shouldMangle=*/true);
  script.register_attribute("training", c10::BoolType::get(), false);
  for (const auto& item : ours.named_parameters(false)) {
    const torch::Tensor& parameter = item.value();
    script.register_parameter(item.key(), parameter.detach().cpu().clone().set_requires_grad(parameter.requires_grad()),
                              /*is_buffer=*/false);
  }
  for (const auto& item : ours.named_buffers(false)) script.register_buffer(item.key(), item.value().cpu().clone());
  for (const auto& item : ours.named_children()) {
    script.register_module(item.key(), script_tensors(*item.value(), compilation));
  }
  return script;
}

}  // namespace

torch::jit::Module load_script(const std::string& file, const std::string& extra_name, std::string* extra) {
  try {
    torch::jit::ExtraFilesMap files;
    if (extra != nullptr) files[extra_name] = "";
    torch::jit::Module script = torch::jit::load(file, torch::kCPU, files);
    if (extra != nullptr) *extra = files[extra_name];
    return script;
  } catch (const c10::Error& error) {
    LOCKSTEP_THROW(DataError, "[train] the file is no TorchScript model: file=\"", file,
                   "\"; save it in Python by torch.jit.script(model).save(file): ", error.what_without_backtrace());
  }
}

ScriptNetwork::ScriptNetwork(const std::string& file, int64_t outputs) : script_(load_script(file)), outputs_(outputs) {
  LOCKSTEP_CHECK_DATA(script_.find_method("forward"), "[train] the model must have a method forward: file=\"", file,
                      "\"");
  share(script_, *this);
}

void ScriptNetwork::share(torch::jit::Module& script, torch::nn::Module& ours) {
  for (const auto& item : script.named_parameters(false)) {
    ours.register_parameter(item.name, item.value, item.value.requires_grad());
    shared_.push_back({script, item.name, &ours, true});
  }
  for (const auto& item : script.named_buffers(false)) {
    ours.register_buffer(item.name, item.value);
    shared_.push_back({script, item.name, &ours, false});
  }
  for (const auto& item : script.named_children()) {
    auto child = std::make_shared<torch::nn::Module>();
    ours.register_module(item.name, child);
    torch::jit::Module part = item.value;
    share(part, *child);
  }
}

void ScriptNetwork::refresh() {
  for (Shared& each : shared_) {
    const auto tensors = each.is_parameter ? each.ours->named_parameters(false) : each.ours->named_buffers(false);
    const torch::Tensor& tensor = tensors[each.name];
    if (!each.owner.attr(each.name).toTensor().is_same(tensor)) each.owner.setattr(each.name, tensor);
  }
  if (script_.is_training() != is_training()) script_.train(is_training());
}

torch::Tensor ScriptNetwork::forward(const torch::Tensor& x) {
  refresh();
  // The optimizer of TorchScript computes the first calls in another way than later ones: results would depend on how
  // often a process has called.
  const torch::jit::GraphOptimizerEnabledGuard same_in_each_call(false);
  const c10::IValue output = script_.forward({x});
  LOCKSTEP_CHECK_VALUE(output.isTensor(), "[train] the model must return one tensor: type=", output.tagKind());
  const torch::Tensor values = output.toTensor();
  LOCKSTEP_CHECK_VALUE(values.dim() != 2 || values.size(1) >= outputs_,
                       "[train] the model must have an output for each class of the data: outputs=", values.size(1),
                       ", classes=", outputs_, "; change its last layer, or give another --target");
  return values;
}

torch::jit::Module ScriptNetwork::present() {
  refresh();
  torch::jit::Module copy = script_.deepcopy();
  copy.to(torch::kCPU);
  copy.eval();
  return copy;
}

torch::jit::Module to_script(Network& network) {
  if (auto* own = dynamic_cast<ScriptNetwork*>(&network)) return own->present();
  torch::jit::Module script = script_tensors(network, std::make_shared<torch::jit::CompilationUnit>());
  script.define("def forward(self, x):\n" + network.script("self") + "    return x\n");
  return script;
}

}  // namespace lockstep::tools
