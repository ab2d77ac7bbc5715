#include "lockstep/comm/collective_call.h"

#include <sstream>
#include <utility>

#include "lockstep/base/dtype_name.h"
#include "lockstep/base/hash.h"

namespace lockstep::comm {
namespace {

thread_local uint64_t outside_changes_of_thread = 0;
thread_local CollectiveOwner owner_of_thread;

uint64_t mix_tensor(uint64_t hash, const at::Tensor& tensor, int64_t free_dimension) {
  if (!tensor.defined()) return mix_hash(hash, ~0ull);
  hash = mix_hash(hash, static_cast<uint64_t>(tensor.scalar_type()) | static_cast<uint64_t>(tensor.layout()) << 8 |
                            static_cast<uint64_t>(tensor.device().type()) << 16 |
                            static_cast<uint64_t>(tensor.dim()) << 32);
  if (tensor.layout() == at::kSparse) hash = mix_hash(hash, static_cast<uint64_t>(tensor.sparse_dim()));
  const auto sizes = tensor.sizes();
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (static_cast<int64_t>(d) != free_dimension) hash = mix_hash(hash, static_cast<uint64_t>(sizes[d]));
  }
  return hash;
}

void describe_tensor(std::ostream& out, const at::Tensor& tensor) {
  if (!tensor.defined()) {
    out << "undefined tensor";
    return;
  }
  if (tensor.layout() != at::kStrided) out << tensor.layout() << ' ';
  out << dtype_name(tensor.scalar_type()) << tensor.sizes();
  if (!tensor.device().is_cpu()) out << " on " << tensor.device().type();
}

}  // namespace

OutsideChangesScope::OutsideChangesScope(uint64_t hash) : outer_(outside_changes_of_thread) {
  outside_changes_of_thread = hash;
}

OutsideChangesScope::~OutsideChangesScope() { outside_changes_of_thread = outer_; }

uint64_t OutsideChangesScope::current() { return outside_changes_of_thread; }

CollectiveOwner CollectiveOwner::current() { return owner_of_thread; }

std::ostream& operator<<(std::ostream& out, const CollectiveOwner& owner) {
  return out << owner.operation << " of " << owner.kind << ' ' << owner.number;
}

CollectiveOwnerScope::CollectiveOwnerScope(const CollectiveOwner& owner)
    : outer_(std::exchange(owner_of_thread, owner)) {}

CollectiveOwnerScope::~CollectiveOwnerScope() { owner_of_thread = outer_; }

int CollectiveCall::root_for(int rank) const {
  return groups == nullptr || root < 0 ? root : groups->members(rank)[static_cast<size_t>(root)];
}

bool CollectiveCall::reads(int reader, int from, size_t index) const {
  if (groups != nullptr && &groups->members(reader) != &groups->members(from)) return false;
  if (readers > 0) {
    const size_t members = groups == nullptr ? readers : groups->members(from).size();
    const int position = groups == nullptr ? reader : groups->position(reader);
    return index % members == static_cast<size_t>(position);
  }
  return root < 0 || only_root_is_read || reader == root_for(from);
}

size_t CollectiveCall::num_inputs(int rank, int num_ranks, size_t own) const {
  if (readers == 0) return own;
  return own / readers * (groups == nullptr ? static_cast<size_t>(num_ranks) : groups->members(rank).size());
}

uint64_t CollectiveCall::fingerprint() const {
  uint64_t hash = mix_hash(given().size(), operation.data(), operation.size());
  if (outside_changes != 0) hash = mix_hash(hash, outside_changes);
  if (!owner.kind.empty()) {
    hash = mix_hash(hash, owner.kind.data(), owner.kind.size());
    hash = mix_hash(mix_hash(hash, owner.number), owner.operation.data(), owner.operation.size());
  }
  hash = mix_hash(hash, static_cast<uint64_t>(reduce_op) << 32 | static_cast<uint32_t>(root));
  hash = mix_hash(hash, static_cast<uint64_t>(free_dimension));
  if (payload_type != nullptr) hash = mix_hash(hash, payload_type->hash_code());
  if (groups != nullptr) hash = mix_hash(hash, groups->hash());
  if (!carrier.empty()) hash = mix_hash(hash, carrier.data(), carrier.size());
  for (const auto& tensor : given()) hash = mix_tensor(hash, tensor, free_dimension);
  return hash;
}

const char* begin_description(std::ostream& out, std::string_view operation, const CollectiveOwner& owner,
                              ReduceOp::Kind reduce_op) {
  out << operation << '(';
  const char* separator = "";
  if (!owner.kind.empty()) {
    out << owner;
    separator = ", ";
  }
  if (operation.find("reduce") != std::string_view::npos) {
    out << separator << ReduceOp(reduce_op);
    separator = ", ";
  }
  return separator;
}

std::string CollectiveCall::describe() const {
  std::ostringstream out;
  const char* separator = begin_description(out, operation, owner, reduce_op);
  const auto tensors = given();
  if (!tensors.empty()) {
    out << separator;
    describe_tensor(out, tensors[0]);
    separator = ", ";
  }
  if (tensors.size() > 1) out << separator << tensors.size() << " tensors";
  if (free_dimension >= 0) out << separator << "dim " << free_dimension;
  if (root >= 0) out << separator << "root " << root;
  if (groups != nullptr) out << (tensors.empty() && root < 0 ? separator : ", ") << "within " << *groups;
  out << ')';
  if (!carrier.empty()) out << " by " << carrier;
  if (site) out << " at " << site;
  if (outside_changes != 0) {
    out << " after the module was changed outside of run (checksum " << std::hex << outside_changes << std::dec
        << "; all workers must make the same change, or call broadcast())";
  }
  return out.str();
}

}  // namespace lockstep::comm
