#pragma once

#include <memory>
#include <string>

#include "lockstep/state/block_file.h"
#include "lockstep/state/state.h"

/// Internal: files of PyTorch.
namespace lockstep::detail {

/// Opens what `torch.save` or `torch.jit.save` wrote. Contiguous tensors are read when they are used.
State open_torch_file(std::shared_ptr<const BlockFile> file);

/// Weights of a TorchScript module. DataError for a module with `__setstate__`, which would be executed.
State open_torch_script(const std::string& path);

}  // namespace lockstep::detail
