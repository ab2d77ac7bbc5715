#include "lockstep/cluster/tpu/slice_text.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "lockstep/base/error.h"
#include "lockstep/cluster/tpu/accelerator_type.h"

namespace lockstep::tpu {
namespace {

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

Topology topology_of_sizes(std::string_view text, const std::vector<int>& chips_per_host) {
  std::vector<int> mesh = parse_sizes("topology", text);
  LOCKSTEP_CHECK_VALUE(mesh.size() >= 2 && mesh.size() <= kMeshRank,
                       "[Topology] a mesh has two to four sizes, x, y, z and cores: topology=\"", text, "\"");
  mesh.resize(kMeshRank, 1);
  return chips_per_host.empty() ? Topology::slice(mesh) : Topology::slice(mesh, chips_per_host);
}

}  // namespace

std::vector<int> parse_sizes(const std::string& name, std::string_view text) {
  std::vector<int> sizes;
  const char* next = text.data();
  const char* const end = text.data() + text.size();
  for (;;) {
    int size = 0;
    const auto [stop, error] = std::from_chars(next, end, size);
    const bool goes_on = stop != end && stop + 1 != end && (*stop == 'x' || *stop == ',');
    LOCKSTEP_CHECK_VALUE(error == std::errc() && size >= 1 && (stop == end || goes_on),
                         "[Topology] sizes are whole numbers of at least 1, as in 4x4x2 or 1,1,1,2: ", name, "=\"",
                         text, "\"");
    sizes.push_back(size);
    if (stop == end) return sizes;
    next = stop + 1;
  }
}

Topology topology_from_text(std::string_view text, const std::vector<int>& chips_per_host) {
  LOCKSTEP_CHECK_VALUE(!text.empty(),
                       "[Topology] a topology is the sizes of a mesh, as in 4x4x2x2, or the type of a slice, as in "
                       "v3-32: topology=\"\"");
  if (is_digit(text.front())) return topology_of_sizes(text, chips_per_host);
  const MeshShape mesh = mesh_of_type(text);
  const MeshShape host = usual_host(mesh, find_accelerator_type(text)->has_large_hosts);
  return Topology::slice(listed(mesh), chips_per_host.empty() ? listed(host) : chips_per_host);
}

}  // namespace lockstep::tpu
