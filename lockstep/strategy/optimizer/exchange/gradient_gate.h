#pragma once

#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/api.h"
#include "lockstep/strategy/optimizer/exchange/reduced_gradients.h"
#include "lockstep/strategy/optimizer/replica_parameters.h"

/// Internal: the way of a gradient out of its parameter. Nobody else reads what autograd or a user left in
/// `parameter.grad()` to exchange it, and nobody else asks for the address of a gradient.
namespace lockstep::detail {

/// Returns the gradient of a parameter in the form in which it is exchanged: dense and contiguous, or sparse with
/// contiguous values; without negative and conjugate bits; undefined where there is none. Throws if dtype, shape or
/// device differ from the parameter's. A gradient on another device than `reader` keeps its
/// strides: copying it there makes it contiguous.
LOCKSTEP_API at::Tensor exchanged_gradient(const at::Tensor& parameter, c10::Device reader, std::string_view name = {});
/// Returns it for where the parameter is stored.
LOCKSTEP_API at::Tensor exchanged_gradient(const ReplicaParameters& replica, size_t parameter);

/// Returns it as it is, after the same checks: for an update of which nobody else reads it.
LOCKSTEP_API at::Tensor own_gradient(const ReplicaParameters& replica, size_t parameter);

/// Returns the gradient of a parameter in that form, to be overwritten by a sum. What is returned is the parameter's
/// own gradient: where the form differs, it is replaced.
LOCKSTEP_API at::Tensor gradient_to_reduce(const at::Tensor& parameter, std::string_view name = {});

/// Sets a gradient of zeros, in that form, and returns it.
LOCKSTEP_API at::Tensor set_zero_gradient(const at::Tensor& parameter);

/// Gives each gradient memory of its own before gradients are written: backward may leave views of one tensor in
/// several parameters. A sum stays a sum.
LOCKSTEP_API void separate_gradients(const std::vector<at::Tensor>& parameters, ReducedGradients& reduced);
/// Does it for gradients of which none is a sum, those of several optimizers.
LOCKSTEP_API void separate_gradients(const std::vector<at::Tensor>& parameters);
/// Does it for one gradient that backward has just written, while other gradients are not there yet. `received` is what
/// the node that wrote it was given.
LOCKSTEP_API void separate_from_graph(at::Tensor& gradient, const std::vector<at::Tensor>& received);

/// Returns the address of a dense gradient, or of the values of a sparse one, that has passed the gate.
LOCKSTEP_API const char* gradient_memory(const at::Tensor& contiguous);

/// Returns a gradient as rows of its parameter. A dense gradient has all of them.
LOCKSTEP_API at::Tensor as_rows(const at::Tensor& gradient);
/// Returns a sparse gradient without rows.
LOCKSTEP_API at::Tensor no_rows_of(const at::Tensor& parameter);

}  // namespace lockstep::detail
