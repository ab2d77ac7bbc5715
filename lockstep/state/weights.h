#pragma once

#include <string>

#include "lockstep/api.h"
#include "lockstep/state/state.h"

namespace lockstep {

/// Reads weights of any of these files, which its content tells apart: safetensors; a `state_dict`, or a dictionary
/// with one, saved by Python's `torch.save` (format of PyTorch 1.6 and later); TorchScript; a folder of a checkpoint.
/// Names are those of `state_dict`. Values of safetensors files and checkpoints are read when they are used. DataError
/// with file and place where it is damaged or something else. Nothing in a file is executed.
LOCKSTEP_API State load_file(const std::string& path);

/// Writes the tensors of a state to one safetensors file, which replaces an older one when it is complete. Numbers and
/// texts are in its metadata, as JSON. Where other workers hold a part of a tensor, all workers call it, and each
/// one writes the same file.
LOCKSTEP_API void save_safetensors(const State& state, const std::string& path);

/// Translates the state of PyTorch's SGD, Adam, AdamW, Adagrad or RMSprop (`torch.save(optimizer.state_dict())`, as
/// `load_file` reads it) into names of parameters. `names` are those of `model.named_parameters()` in Python's order,
/// which are those of LibTorch.
LOCKSTEP_API State from_pytorch_optimizer(const State& optimizer, const std::vector<std::string>& names);

}  // namespace lockstep
