#include <caffe2/serialize/inline_container.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>

#include "lockstep/base/error.h"
#include "lockstep/state/formats/torch_file.h"

namespace lockstep::detail {
namespace {

/// Loading a module calls its __setstate__.
void check_nothing_is_executed(const std::string& path) {
  caffe2::serialize::PyTorchStreamReader archive(path);
  for (const std::string& name : archive.getAllRecords()) {
    if (!name.starts_with("code/") || !name.ends_with(".py")) continue;
    const auto [bytes, size] = archive.getRecord(name);
    const std::string_view code(static_cast<const char*>(bytes.get()), size);
    LOCKSTEP_CHECK_DATA(code.find("__setstate__") == std::string_view::npos, "[", path,
                        "] a module with __setstate__ is not loaded, because that would execute it: code=", name,
                        "; save its state_dict() in Python");
  }
}

}  // namespace

State open_torch_script(const std::string& path) {
  State state;
  std::string problem;
  try {
    check_nothing_is_executed(path);
    const torch::jit::Module module = torch::jit::load(path, at::kCPU);
    for (const auto& [name, value] : module.named_parameters(true)) state.set(name, value.detach());
    for (const auto& [name, value] : module.named_buffers(true)) state.set(name, value.detach());
  } catch (const DataError&) {
    throw;
  } catch (const c10::Error& error) {
    problem = error.what_without_backtrace();
  } catch (const std::exception& error) {
    problem = error.what();
  }
  LOCKSTEP_CHECK_DATA(problem.empty(), "[", path, "] LibTorch cannot load the TorchScript module: ", problem);
  return state;
}

}  // namespace lockstep::detail
