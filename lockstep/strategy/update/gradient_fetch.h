#pragma once

#include <ATen/core/Tensor.h>

/// Inside: gradients on their way to where parameters are kept.
namespace lockstep::detail {

/// Copies a gradient beside what is kept, in the order of the calling thread's stream. `fetched` is made where it is
/// not, on the CPU in page-locked memory.
void fetch(const at::Tensor& gradient, at::Tensor& fetched, const at::Tensor& kept);

/// The same for a sparse gradient: its rows alone.
at::Tensor fetch_rows(const at::Tensor& gradient, c10::Device device);

/// A sparse gradient whose values are contiguous, which those of a sum are not: they are one number in many places.
at::Tensor with_plain_values(const at::Tensor& gradient);

/// A gradient that names rows: what is dense names all of them, and where there is none, no row.
at::Tensor as_rows(const at::Tensor& gradient);
at::Tensor no_rows_of(const at::Tensor& parameter);

}  // namespace lockstep::detail
