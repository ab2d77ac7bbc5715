#include "lockstep/comm/group.h"

#include <algorithm>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "lockstep/base/dtype_name.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/call_options.h"
#include "lockstep/comm/group_checks.h"
#include "lockstep/comm/group_impl.h"

namespace lockstep::comm {
namespace {

bool is_integer(const at::Tensor& tensor) { return at::isIntegralType(tensor.scalar_type(), /*includeBool=*/true); }

/// Where the mean of a tensor lives: itself, or floating point in place of integers.
at::Tensor as_mean(const at::Tensor& tensor) {
  if (!is_integer(tensor)) return tensor;
  return tensor.to(tensor.element_size() <= 2 ? at::kFloat : at::kDouble);
}

at::Tensor empty_as(const at::Tensor& tensor) {
  return at::empty(tensor.sizes(), tensor.options().requires_grad(false));
}

std::vector<at::Tensor> empty_as(at::TensorList tensors) {
  std::vector<at::Tensor> made;
  made.reserve(tensors.size());
  for (const auto& tensor : tensors) made.push_back(empty_as(tensor));
  return made;
}

std::vector<at::Tensor> copies_of(at::TensorList tensors) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> copies;
  copies.reserve(tensors.size());
  for (const auto& tensor : tensors) copies.push_back(tensor.detach().clone());
  return copies;
}

std::vector<at::Tensor> as_means(at::TensorList tensors, ReduceOp op) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> inputs = tensors.vec();
  if (op != ReduceOp::Mean) return inputs;
  for (auto& tensor : inputs) tensor = as_mean(tensor);
  return inputs;
}

/// Tells autograd that values have changed, as LibTorch's own in-place operators do.
void mark_changed(at::TensorList tensors) {
  for (const auto& tensor : tensors) {
    if (!tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
  }
}

void check_in_place_mean(const Where& where, at::TensorList tensors, ReduceOp op) {
  if (op != ReduceOp::Mean) return;
  for (const auto& tensor : tensors) {
    LOCKSTEP_CHECK_TYPE(!is_integer(tensor), "[", where.operation,
                        "] the mean of integers is floating point and has no place in them: dtype=",
                        dtype_name(tensor.scalar_type()), where, "; use the form without underscore");
  }
}

bool is_sparse(const at::Tensor& tensor) { return tensor.layout() == at::kSparse; }

/// Reduces dense tensors on all ranks, pack by pack.
void reduce_in_packs(GroupImpl& group, at::TensorList inputs, at::TensorList outputs, ReduceOp op,
                     const CommunicationOptions& options) {
  write_results(inputs, outputs, options, [&](at::TensorList from, at::TensorList to) {
    for_each_pack(from, to, options,
                  [&](at::TensorList pack, at::TensorList target) { group.do_all_reduce(pack, target, op, options); });
  });
}

/// Reduces dense tensors on the root, pack by pack.
void reduce_to_root(GroupImpl& group, at::TensorList inputs, at::TensorList outputs, ReduceOp op, int root,
                    const CommunicationOptions& options) {
  write_results(inputs, outputs, options, [&](at::TensorList from, at::TensorList to) {
    for_each_pack(from, to, options, [&](at::TensorList pack, at::TensorList target) {
      group.do_reduce(pack, target, op, root, options);
    });
  });
}

/// Reduces lists of dense tensors into new ones.
std::vector<at::Tensor> reduce_dense(GroupImpl& group, at::TensorList inputs, ReduceOp op,
                                     const CommunicationOptions& options) {
  auto outputs = empty_as(inputs);
  reduce_in_packs(group, inputs, outputs, op, options);
  return outputs;
}

/// Reduces dense and sparse tensors of one list in one collective each.
std::vector<at::Tensor> reduce_mixed(GroupImpl& group, at::TensorList inputs, ReduceOp op,
                                     const CommunicationOptions& options) {
  std::vector<at::Tensor> dense, sparse;
  for (const auto& tensor : inputs) (is_sparse(tensor) ? sparse : dense).push_back(tensor);
  if (!dense.empty()) dense = reduce_dense(group, dense, op, options);
  sparse = group.do_all_reduce_sparse(sparse, op, options);
  std::vector<at::Tensor> results;
  size_t next_dense = 0, next_sparse = 0;
  for (const auto& tensor : inputs) results.push_back(is_sparse(tensor) ? sparse[next_sparse++] : dense[next_dense++]);
  return results;
}

at::Tensor only(std::vector<at::Tensor> tensors) { return tensors.empty() ? at::Tensor() : std::move(tensors[0]); }

at::TensorList list_of(const at::Tensor& tensor) { return at::TensorList(&tensor, 1); }

}  // namespace

RowShare row_share(int64_t rows, int rank, int size) {
  const int64_t each = rows / size;
  const int64_t rest = rows % size;
  return {each * rank + std::min<int64_t>(rank, rest), each + (rank < rest ? 1 : 0)};
}

Group::Group(std::shared_ptr<GroupImpl> impl) : impl_(std::move(impl)) {
  LOCKSTEP_ASSERT(impl_ != nullptr, "a group needs an engine");
}

int Group::rank() const { return impl_->rank(); }
int Group::size() const { return impl_->size(); }
const std::string& Group::name() const { return impl_->name(); }

std::vector<at::Tensor> Group::all_reduce(at::TensorList tensors, ReduceOp op,
                                          const CommunicationOptions& options) const {
  const Where where{"all_reduce", *impl_};
  check_tensors(where, tensors);
  check_implementation(where, tensors, options);
  check_reducible(where, tensors, op);
  const bool sparse = std::any_of(tensors.begin(), tensors.end(), is_sparse);
  const auto inputs = as_means(tensors, op);
  if (impl_->is_alone()) return copies_of(inputs);
  return sparse ? reduce_mixed(*impl_, inputs, op, options) : reduce_dense(*impl_, inputs, op, options);
}

at::Tensor Group::all_reduce(const at::Tensor& tensor, ReduceOp op, const CommunicationOptions& options) const {
  return only(all_reduce(list_of(tensor), op, options));
}

void Group::all_reduce_(at::TensorList tensors, ReduceOp op, const CommunicationOptions& options) const {
  const Where where{"all_reduce_", *impl_};
  check_tensors(where, tensors);
  check_implementation(where, tensors, options);
  check_reducible(where, tensors, op);
  check_in_place_mean(where, tensors, op);
  if (impl_->is_alone()) return;
  if (std::any_of(tensors.begin(), tensors.end(), is_sparse)) {
    const at::NoGradGuard no_grad;
    const auto results = reduce_mixed(*impl_, tensors, op, options);
    for (size_t i = 0; i < tensors.size(); ++i) tensors[i].copy_(results[i]);
    return;
  }
  reduce_in_packs(*impl_, tensors, tensors, op, options);
  mark_changed(tensors);
}

std::vector<at::Tensor> Group::reduce(at::TensorList tensors, int root, ReduceOp op,
                                      const CommunicationOptions& options) const {
  const Where where{"reduce", *impl_};
  check_root(where, root);
  check_tensors(where, tensors);
  check_implementation(where, tensors, options);
  check_dense(where, tensors);
  check_reducible(where, tensors, op);
  const auto inputs = as_means(tensors, op);
  if (impl_->is_alone()) return copies_of(inputs);
  const auto outputs = rank() == root ? empty_as(inputs) : std::vector<at::Tensor>();
  reduce_to_root(*impl_, inputs, outputs, op, root, options);
  return outputs;
}

at::Tensor Group::reduce(const at::Tensor& tensor, int root, ReduceOp op, const CommunicationOptions& options) const {
  return only(reduce(list_of(tensor), root, op, options));
}

void Group::reduce_(at::TensorList tensors, int root, ReduceOp op, const CommunicationOptions& options) const {
  const Where where{"reduce_", *impl_};
  check_root(where, root);
  check_tensors(where, tensors);
  check_implementation(where, tensors, options);
  check_dense(where, tensors);
  check_reducible(where, tensors, op);
  check_in_place_mean(where, tensors, op);
  if (impl_->is_alone()) return;
  const bool gets = rank() == root;
  reduce_to_root(*impl_, tensors, gets ? tensors : at::TensorList(), op, root, options);
  if (gets) mark_changed(tensors);
}

std::vector<at::Tensor> Group::broadcast(at::TensorList tensors, int root, const CommunicationOptions& options) const {
  const Where where{"broadcast", *impl_};
  check_root(where, root);
  check_tensors(where, tensors);
  check_implementation(where, tensors, options);
  check_dense(where, tensors);
  if (impl_->is_alone()) return copies_of(tensors);
  auto outputs = empty_as(tensors);
  write_results(tensors, outputs, options,
                [&](at::TensorList from, at::TensorList to) { impl_->do_broadcast(from, to, root, options); });
  return outputs;
}

at::Tensor Group::broadcast(const at::Tensor& tensor, int root, const CommunicationOptions& options) const {
  return only(broadcast(list_of(tensor), root, options));
}

void Group::broadcast_(at::TensorList tensors, int root, const CommunicationOptions& options) const {
  const Where where{"broadcast_", *impl_};
  check_root(where, root);
  check_tensors(where, tensors);
  check_implementation(where, tensors, options);
  check_dense(where, tensors);
  if (impl_->is_alone()) return;
  write_results(tensors, tensors, options,
                [&](at::TensorList from, at::TensorList to) { impl_->do_broadcast(from, to, root, options); });
}

std::vector<at::Tensor> Group::all_gather(at::TensorList tensors, int64_t dim,
                                          const CommunicationOptions& options) const {
  const Where where{"all_gather", *impl_};
  check_tensors(where, tensors);
  check_implementation(where, tensors, options);
  check_dense(where, tensors);
  dim = check_dim(where, tensors, dim);
  if (impl_->is_alone()) return copies_of(tensors);
  return make_results(tensors, options, [&](at::TensorList from) { return impl_->do_all_gather(from, dim, options); });
}

at::Tensor Group::all_gather(const at::Tensor& tensor, int64_t dim, const CommunicationOptions& options) const {
  return only(all_gather(list_of(tensor), dim, options));
}

std::vector<at::Tensor> Group::gather(at::TensorList tensors, int64_t dim, int root,
                                      const CommunicationOptions& options) const {
  const Where where{"gather", *impl_};
  check_root(where, root);
  check_tensors(where, tensors);
  check_implementation(where, tensors, options);
  check_dense(where, tensors);
  dim = check_dim(where, tensors, dim);
  if (impl_->is_alone()) return copies_of(tensors);
  return make_results(tensors, options,
                      [&](at::TensorList from) { return impl_->do_gather(from, dim, root, options); });
}

at::Tensor Group::gather(const at::Tensor& tensor, int64_t dim, int root, const CommunicationOptions& options) const {
  return only(gather(list_of(tensor), dim, root, options));
}

at::Tensor Group::reduce_scatter(const at::Tensor& tensor, ReduceOp op, const CommunicationOptions& options) const {
  const Where where{"reduce_scatter", *impl_};
  check_tensors(where, list_of(tensor));
  check_implementation(where, list_of(tensor), options);
  check_dense(where, list_of(tensor));
  check_reducible(where, list_of(tensor), op);
  LOCKSTEP_CHECK_VALUE(tensor.dim() >= 1, "[reduce_scatter] a scalar has no rows to share: shape=[]", where);
  const auto input = as_means(list_of(tensor), op)[0];
  if (impl_->is_alone()) return copies_of(list_of(input))[0];
  auto sizes = input.sizes().vec();
  sizes[0] = row_share(input.size(0), rank(), size()).count;
  auto output = at::empty(sizes, input.options().requires_grad(false));
  write_results(list_of(input), list_of(output), options,
                [&](at::TensorList from, at::TensorList to) { impl_->do_reduce_scatter(from[0], to[0], op, options); });
  return output;
}

std::vector<at::Tensor> Group::all_to_all(at::TensorList tensors, at::IntArrayRef split_sizes,
                                          const CommunicationOptions& options, RowCounts* received) const {
  const Where where{"all_to_all", *impl_};
  check_tensors(where, tensors);
  check_implementation(where, tensors, options);
  check_dense(where, tensors);
  const RowCounts sent = rows_to_send(where, tensors, split_sizes);
  if (impl_->is_alone()) {
    if (received != nullptr) *received = sent;
    return copies_of(tensors);
  }
  RowCounts counts;
  auto results = make_results(tensors, options,
                              [&](at::TensorList from) { return impl_->do_all_to_all(from, sent, counts, options); });
  if (received != nullptr) *received = std::move(counts);
  return results;
}

at::Tensor Group::all_to_all(const at::Tensor& tensor, at::IntArrayRef split_sizes,
                             const CommunicationOptions& options) const {
  return only(all_to_all(list_of(tensor), split_sizes, options));
}

Group Group::within(const RankGroups& groups) const {
  LOCKSTEP_CHECK_VALUE(groups.num_ranks() == size(), "[within] each replica must be in exactly one group: ",
                       groups.num_ranks() < size() ? "missing=" : "unknown=", std::min(groups.num_ranks(), size()),
                       ", replicas=", size(), ", groups=", groups, "; give the replicas from 0 to ", size() - 1);
  return Group(impl_->do_within(impl_, std::make_shared<const RankGroups>(groups)));
}

void Group::barrier(const CommunicationOptions& options) const {
  options.validate();
  if (!impl_->is_alone()) impl_->do_barrier(options);
}

}  // namespace lockstep::comm
