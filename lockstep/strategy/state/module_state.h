#pragma once

#include <memory>

#include <torch/nn/module.h>

#include "lockstep/api.h"

/// Internal: the state of modules.
namespace lockstep::detail {

class ModuleReplicas;
class StateObject;

/// Names are those of `named_parameters()` and `named_buffers()`. What is loaded is written to all local replicas.
LOCKSTEP_API std::shared_ptr<StateObject> module_state_object(std::shared_ptr<ModuleReplicas> replicas);
/// Of a module that belongs to no strategy.
LOCKSTEP_API std::shared_ptr<StateObject> module_state_object(std::shared_ptr<torch::nn::Module> module);
/// The module must outlive it.
LOCKSTEP_API std::shared_ptr<StateObject> module_state_object(torch::nn::Module& module);

}  // namespace lockstep::detail
