#include "lockstep/comm/call.h"

#include <cstring>
#include <sstream>

#include "lockstep/base/dtype_name.h"

namespace lockstep::comm {
namespace {

uint64_t mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15ull;
  return hash ^ (hash >> 32);
}

uint64_t mix_text(uint64_t hash, std::string_view text) {
  for (size_t at = 0; at < text.size(); at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, text.data() + at, std::min(sizeof(word), text.size() - at));
    hash = mix(hash, word);
  }
  return mix(hash, text.size());
}

uint64_t mix_tensor(uint64_t hash, const at::Tensor& tensor, int64_t free_dimension) {
  if (!tensor.defined()) return mix(hash, ~0ull);
  hash = mix(hash, static_cast<uint64_t>(tensor.scalar_type()) | static_cast<uint64_t>(tensor.layout()) << 8 |
                       static_cast<uint64_t>(tensor.device().type()) << 16 | static_cast<uint64_t>(tensor.dim()) << 32);
  if (tensor.layout() == at::kSparse) hash = mix(hash, static_cast<uint64_t>(tensor.sparse_dim()));
  const auto sizes = tensor.sizes();
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (static_cast<int64_t>(d) != free_dimension) hash = mix(hash, static_cast<uint64_t>(sizes[d]));
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

uint64_t Call::fingerprint() const {
  uint64_t hash = mix_text(inputs.size(), operation);
  hash = mix(hash, static_cast<uint64_t>(reduce_op) << 32 | static_cast<uint32_t>(root));
  hash = mix(hash, static_cast<uint64_t>(free_dimension));
  if (payload_type != nullptr) hash = mix(hash, payload_type->hash_code());
  for (const auto& tensor : inputs) hash = mix_tensor(hash, tensor, free_dimension);
  return hash;
}

std::string Call::describe() const {
  std::ostringstream out;
  out << operation << '(';
  const char* separator = "";
  if (operation.find("reduce") != std::string_view::npos) {
    out << ReduceOp(reduce_op);
    separator = ", ";
  }
  if (!inputs.empty()) {
    out << separator;
    describe_tensor(out, inputs[0]);
    separator = ", ";
  }
  if (inputs.size() > 1) out << separator << inputs.size() << " tensors";
  if (free_dimension >= 0) out << separator << "dim " << free_dimension;
  if (root >= 0) out << separator << "root " << root;
  out << ')';
  if (site) out << " at " << site;
  return out.str();
}

}  // namespace lockstep::comm
