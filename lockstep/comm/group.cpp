#include "lockstep/comm/group.h"

#include <algorithm>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "lockstep/base/dtype_name.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/call_options.h"
#include "lockstep/comm/group_impl.h"

namespace lockstep::comm {
namespace {

struct Where {
  const char* operation;
  const GroupImpl& group;
};

std::ostream& operator<<(std::ostream& out, const Where& where) {
  return out << " (rank " << where.group.rank() << " of " << where.group.size() << ", group " << where.group.name()
             << ")";
}

void check_tensors(const Where& where, at::TensorList tensors) {
  for (const auto& tensor : tensors) {
    LOCKSTEP_CHECK_VALUE(tensor.defined(), "[", where.operation, "] every tensor must be defined", where,
                         "; give each rank a tensor, for example zeros where it has no value");
    LOCKSTEP_CHECK_VALUE(tensor.device().type() == tensors[0].device().type(), "[", where.operation,
                         "] one call takes tensors of one kind of device: ", tensors[0].device(), " and ",
                         tensor.device(), where, "; make one call for each");
  }
}

void check_dense(const Where& where, at::TensorList tensors) {
  for (const auto& tensor : tensors) {
    LOCKSTEP_CHECK_IMPLEMENTED(tensor.layout() == at::kStrided, "[", where.operation,
                               "] the tensor must be dense: layout=", tensor.layout(), where, "; call to_dense()");
  }
}

void check_reducible(const Where& where, at::TensorList tensors, ReduceOp op) {
  for (const auto& tensor : tensors) {
    const auto dtype = tensor.scalar_type();
    const bool adds = op == ReduceOp::Sum || op == ReduceOp::Mean;
    const bool orders = op == ReduceOp::Min || op == ReduceOp::Max;
    LOCKSTEP_CHECK_TYPE(dtype != at::kBool || op != ReduceOp::Mean || where.group.size() == 1, "[", where.operation,
                        "] bool has no mean: op=", op, where, "; convert it to a floating-point type");
    LOCKSTEP_CHECK_TYPE(!tensor.is_complex() || !orders, "[", where.operation,
                        "] complex numbers have no order: op=", op, ", dtype=", dtype_name(dtype), where);
    LOCKSTEP_CHECK_TYPE(dtype != at::kComplexHalf || adds, "[", where.operation,
                        "] complex numbers of half precision have no product: op=", op, where,
                        "; convert them to complex64");
    LOCKSTEP_CHECK_IMPLEMENTED(tensor.layout() == at::kStrided || (adds && tensor.layout() == at::kSparse), "[",
                               where.operation,
                               "] dense tensors, or COO tensors with SUM or MEAN, can be reduced: op=", op,
                               ", layout=", tensor.layout(), where);
  }
}

void check_root(const Where& where, int root) {
  LOCKSTEP_CHECK_VALUE(root >= 0 && root < where.group.size(), "[", where.operation,
                       "] the root must be a rank of the group: root=", root, where);
}

/// Checks `dim` against every tensor and returns it counted from the front.
int64_t check_dim(const Where& where, at::TensorList tensors, int64_t dim) {
  int64_t wrapped = 0;
  for (const auto& tensor : tensors) {
    LOCKSTEP_CHECK_VALUE(tensor.dim() >= 1, "[", where.operation, "] a scalar cannot be gathered: shape=[]", where,
                         "; give it a dimension with unsqueeze(0)");
    LOCKSTEP_CHECK_VALUE(dim >= -tensor.dim() && dim < tensor.dim(), "[", where.operation,
                         "] dim must be one of the tensor's dimensions: dim=", dim, ", shape=", tensor.sizes(), where);
    const int64_t counted = dim < 0 ? dim + tensor.dim() : dim;
    LOCKSTEP_CHECK_VALUE(&tensor == tensors.data() || counted == wrapped, "[", where.operation,
                         "] tensors of one call must agree on the dimension: dim=", dim, where,
                         "; use a dim that counts from the front");
    wrapped = counted;
  }
  return wrapped;
}

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

void check_implementation(const Where& where, at::TensorList tensors, const CommunicationOptions& options) {
  options.validate();
  if (options.implementation != CommunicationImplementation::Nccl || tensors.empty()) return;
  LOCKSTEP_CHECK_VALUE(tensors[0].is_cuda(), "[", where.operation,
                       "] NCCL works on GPUs only: implementation=NCCL, device=", tensors[0].device(), where,
                       "; use AUTO or RING");
  LOCKSTEP_CHECK_IMPLEMENTED(where.group.size() == 1 || where.group.uses_nccl(), "[", where.operation,
                             "] NCCL is not the engine of this group: implementation=NCCL", where,
                             "; use AUTO, or give NCCL to MultiWorkerMirroredStrategy");
}

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
  if (size() == 1) return copies_of(inputs);
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
  if (size() == 1) return;
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
  if (size() == 1) return copies_of(inputs);
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
  if (size() == 1) return;
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
  if (size() == 1) return copies_of(tensors);
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
  if (size() == 1) return;
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
  if (size() == 1) return copies_of(tensors);
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
  if (size() == 1) return copies_of(tensors);
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
  if (size() == 1) return copies_of(list_of(input))[0];
  auto sizes = input.sizes().vec();
  sizes[0] = row_share(input.size(0), rank(), size()).count;
  auto output = at::empty(sizes, input.options().requires_grad(false));
  write_results(list_of(input), list_of(output), options,
                [&](at::TensorList from, at::TensorList to) { impl_->do_reduce_scatter(from[0], to[0], op, options); });
  return output;
}

void Group::barrier(const CommunicationOptions& options) const {
  options.validate();
  if (size() > 1) impl_->do_barrier(options);
}

}  // namespace lockstep::comm
