#include "lockstep/comm/group_checks.h"

#include "lockstep/base/dtype_name.h"
#include "lockstep/base/error.h"

namespace lockstep::comm {

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
    LOCKSTEP_CHECK_TYPE(dtype != at::kBool || op != ReduceOp::Mean || where.group.is_alone(), "[", where.operation,
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

void check_implementation(const Where& where, at::TensorList tensors, const CommunicationOptions& options) {
  options.validate();
  if (options.implementation != CommunicationImplementation::Nccl || tensors.empty()) return;
  LOCKSTEP_CHECK_VALUE(tensors[0].is_cuda(), "[", where.operation,
                       "] NCCL works on GPUs only: implementation=NCCL, device=", tensors[0].device(), where,
                       "; use AUTO or RING");
  LOCKSTEP_CHECK_IMPLEMENTED(where.group.is_alone() || where.group.uses_nccl(), "[", where.operation,
                             "] NCCL is not the engine of this group: implementation=NCCL", where,
                             "; use AUTO, or give NCCL to MultiWorkerMirroredStrategy");
}

RowCounts rows_to_send(const Where& where, at::TensorList tensors, at::IntArrayRef split_sizes) {
  const auto size = static_cast<size_t>(where.group.size());
  LOCKSTEP_CHECK_VALUE(split_sizes.empty() || split_sizes.size() == size,
                       "[all_to_all] there must be one split size for each rank: split_sizes=", split_sizes, where);
  int64_t sum = 0;
  for (const int64_t rows : split_sizes) {
    LOCKSTEP_CHECK_VALUE(rows >= 0, "[all_to_all] split sizes are numbers of rows: split_sizes=", split_sizes, where);
    sum += rows;
  }
  RowCounts counts;
  for (const auto& tensor : tensors) {
    LOCKSTEP_CHECK_VALUE(tensor.dim() >= 1, "[all_to_all] a scalar has no rows to divide: shape=[]", where,
                         "; give it a dimension with unsqueeze(0)");
    const int64_t rows = tensor.size(0);
    LOCKSTEP_CHECK_VALUE(split_sizes.empty() || sum == rows,
                         "[all_to_all] split sizes must add up to the rows of the tensor: split_sizes=", split_sizes,
                         ", shape=", tensor.sizes(), where);
    LOCKSTEP_CHECK_VALUE(!split_sizes.empty() || rows % where.group.size() == 0,
                         "[all_to_all] the rows must be a multiple of the number of ranks: shape=", tensor.sizes(),
                         where, "; give split sizes");
    counts.push_back(split_sizes.empty() ? std::vector<int64_t>(size, rows / where.group.size()) : split_sizes.vec());
  }
  return counts;
}

}  // namespace lockstep::comm
