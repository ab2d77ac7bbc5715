#include "lockstep/cluster/resolvers/tpu.h"

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/cluster/json_text.h"
#include "lockstep/cluster/launcher.h"
#include "lockstep/cluster/tpu/cloud_node.h"
#include "lockstep/cluster/tpu/local_chips.h"
#include "lockstep/cluster/tpu/slice_workers.h"

namespace lockstep {
namespace {

constexpr const char* kScheme = "grpc://";
constexpr const char* kArgument = "argument of the resolver";
constexpr int kPort = 8470;
constexpr int kMaxSlices = 1024;

/// A TPU's name or addresses, what said so, and where it is looked up.
struct NamedTPU {
  std::string text;
  std::string source;
  std::string project{};
  std::string zone{};

  bool is_addresses() const { return text.starts_with(kScheme); }
  bool is_local() const { return text == "local"; }
};

std::optional<NamedTPU> from_config(const TPUOptions& options) {
  const auto text = options.variables.given("TPU_CONFIG");
  if (!text) return std::nullopt;
  const detail::Json config = detail::parse_json("TPU_CONFIG", *text);
  const std::string name = detail::text_at(config, {"tpu_node_name"});
  if (name.empty()) return std::nullopt;
  return NamedTPU{name, "TPU_CONFIG", detail::text_at(config, {"project"}), detail::text_at(config, {"zone"})};
}

std::optional<NamedTPU> named_tpu(const TPUOptions& options) {
  if (!options.tpu.empty()) return NamedTPU{options.tpu, kArgument};
  for (const char* variable : {"KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "TPU_NAME"}) {
    if (auto text = options.variables.given(variable)) return NamedTPU{*text, variable};
  }
  return from_config(options);
}

std::string with_port(std::string address) {
  if (address.starts_with(kScheme)) address.erase(0, std::string_view(kScheme).size());
  const size_t after_brackets = address.find(']') == std::string::npos ? 0 : address.find(']');
  return address.find(':', after_brackets) == std::string::npos ? detail::host_and_port(address, kPort) : address;
}

/// Returns the host of an address, at this library's port: at the given port something else listens.
std::string with_own_port(std::string address) {
  if (address.starts_with(kScheme)) address.erase(0, std::string_view(kScheme).size());
  const size_t bracket = address.find(']');
  const size_t colon = address.find(':', bracket == std::string::npos ? 0 : bracket);
  const bool is_bare_ipv6 = bracket == std::string::npos && colon != address.rfind(':');
  return detail::host_and_port(is_bare_ipv6 ? address : address.substr(0, colon), kPort);
}

std::vector<std::string> addresses_of(const std::string& text) {
  std::vector<std::string> addresses;
  for (const std::string& address : detail::split_at_commas(text)) {
    LOCKSTEP_CHECK_VALUE(!address.empty(), "[TPUClusterResolver] an address is empty: tpu=\"", text, "\"");
    addresses.push_back(with_port(address));
  }
  return addresses;
}

void add_facts(Resolution& result, std::vector<ClusterFact> facts) {
  result.facts.insert(result.facts.end(), facts.begin(), facts.end());
}

/// Says how many TPU devices each task has, and from where.
void set_devices(Resolution& result, int count, const std::string& source) {
  result.num_accelerators = std::map<std::string, int>{{"TPU", count}};
  add_facts(result, {{"TPU devices", std::to_string(count), source}});
}

void count_devices_here(Resolution& result, const TPUOptions& options) {
  const tpu::LocalChips chips = tpu::local_chips(options.machine_root, options.variables);
  set_devices(result, chips.num_chips * chips.cores_per_chip, chips.source);
}

void set_cluster(Resolution& result, const TPUOptions& options, TaskAddresses tasks, const std::string& source) {
  std::map<std::string, TaskAddresses> jobs{{options.job_name, std::move(tasks)}};
  if (!options.coordinator_name.empty()) {
    jobs.emplace(options.coordinator_name, TaskAddresses{options.coordinator_address});
  }
  result.cluster = ClusterSpec(std::move(jobs));
  add_facts(result, detail::task_facts(result.cluster, source));
}

/// This slice among those that train together.
struct SlicePlace {
  int index = 0;
  int num_slices = 1;
};

SlicePlace slice_place(const Environment& variables) {
  SlicePlace place;
  place.num_slices = detail::optional_number(variables, "MEGASCALE_NUM_SLICES", 1).value_or(1);
  LOCKSTEP_CHECK_VALUE(place.num_slices <= kMaxSlices, "[TPUClusterResolver] there are at most ", kMaxSlices,
                       " slices: MEGASCALE_NUM_SLICES=", place.num_slices);
  if (place.num_slices == 1) return place;
  place.index = detail::required_number(variables, "MEGASCALE_SLICE_ID", "it says which of the slices this one is");
  LOCKSTEP_CHECK_VALUE(place.index < place.num_slices,
                       "[TPUClusterResolver] there is no such slice: MEGASCALE_SLICE_ID=", place.index,
                       ", MEGASCALE_NUM_SLICES=", place.num_slices);
  return place;
}

/// Returns the addresses of all slices' workers, of which those of other slices are not known. The others join worker 0
/// at the port of this library: at that of MEGASCALE_COORDINATOR_ADDRESS MegaScale listens, at those of
/// TPU_PROCESS_ADDRESSES libtpu.
std::map<int, std::string> all_addresses(const Environment& variables, const tpu::SliceWorkers& workers,
                                         const SlicePlace& place) {
  const auto per_slice = static_cast<int>(workers.addresses.size());
  std::map<int, std::string> addresses;
  for (int task = 0; task < per_slice * place.num_slices; ++task) addresses[task] = "";
  for (int worker = 0; worker < per_slice; ++worker) {
    addresses[place.index * per_slice + worker] = with_port(workers.addresses[static_cast<size_t>(worker)]);
  }
  if (place.num_slices == 1) {
    if (workers.source == "TPU_PROCESS_ADDRESSES") addresses[0] = with_own_port(workers.addresses[0]);
    return addresses;
  }
  const auto first = variables.given("MEGASCALE_COORDINATOR_ADDRESS");
  LOCKSTEP_CHECK_CONTEXT(
      first.has_value() || place.index == 0,
      "[TPUClusterResolver] worker 0 of all slices must be known: MEGASCALE_NUM_SLICES=", place.num_slices,
      ", MEGASCALE_SLICE_ID=", place.index, "; set MEGASCALE_COORDINATOR_ADDRESS to the host of worker 0 of slice 0");
  addresses[0] = with_own_port(first && place.index > 0 ? *first : workers.addresses[0]);
  return addresses;
}

void resolve_slice(Resolution& result, const TPUOptions& options, const tpu::SliceWorkers& workers) {
  const auto per_slice = static_cast<int>(workers.addresses.size());
  const SlicePlace place = slice_place(options.variables);
  if (per_slice > 1) {
    const tpu::SourcedNumber index = tpu::slice_worker_index(options.variables, workers);
    result.task_id = place.index * per_slice + index.value;
    add_facts(result, {{"task id", std::to_string(*result.task_id), index.source}});
  } else {
    result.task_id = place.index;
  }
  count_devices_here(result, options);
  if (per_slice * place.num_slices == 1) return;
  set_cluster(result, options, all_addresses(options.variables, workers, place), workers.source);
}

void resolve_name(Resolution& result, const TPUOptions& options, const NamedTPU& named) {
  LOCKSTEP_CHECK_IMPLEMENTED(named.text.find(',') == std::string::npos,
                             "[TPUClusterResolver] a resolver has one TPU: tpu=\"", named.text,
                             "\"; addresses begin with grpc://");
  LOCKSTEP_CHECK_CONTEXT(!options.variables.given("TPU_SKIP_MDS_QUERY"),
                         "[TPUClusterResolver] a name is looked up by the metadata service, which TPU_SKIP_MDS_QUERY "
                         "forbids: tpu=",
                         named.text, "; give its addresses, grpc://host:port,...");
  const std::string metadata_host = options.variables.given("GCE_METADATA_IP").value_or("metadata.google.internal");
  const tpu::CloudNode node =
      tpu::find_cloud_node({.name = named.text,
                            .project = options.project.empty() ? named.project : options.project,
                            .zone = options.zone.empty() ? named.zone : options.zone,
                            .api = options.api,
                            .discovery_url = options.variables.given("TPU_API_DISCOVERY_URL").value_or(""),
                            .metadata = options.metadata.empty() ? "http://" + metadata_host : options.metadata,
                            .client = options.client},
                           kPort);
  set_devices(result, node.devices_per_host.value_or(0), node.devices_per_host ? node.source : "not said by the type");
  set_cluster(result, options, node.addresses, node.source);
}

/// Returns the workers of this machine's slice, unless something else is named.
std::optional<tpu::SliceWorkers> own_slice(const TPUOptions& options, const std::optional<NamedTPU>& named) {
  const bool is_own_name = named && !named->is_addresses() && !named->is_local() &&
                           (named->source == "TPU_NAME" || named->source == "TPU_CONFIG");
  return !named || is_own_name ? tpu::slice_workers(options.variables) : std::nullopt;
}

void check_coordinator(const TPUOptions& options) {
  LOCKSTEP_CHECK_VALUE(options.coordinator_name.empty() == options.coordinator_address.empty(),
                       "[TPUClusterResolver] a coordinator has a name and an address: coordinator_name=\"",
                       options.coordinator_name, "\", coordinator_address=\"", options.coordinator_address,
                       "\"; no server is started for it here");
  LOCKSTEP_CHECK_VALUE(options.coordinator_name.empty() || options.coordinator_name != options.job_name,
                       "[TPUClusterResolver] the coordinator is a job of its own: coordinator_name=\"",
                       options.coordinator_name, "\", job_name=\"", options.job_name, "\"");
}

Resolution resolve(const TPUOptions& options) {
  check_coordinator(options);
  Resolution result;
  result.task_type = options.job_name;
  result.task_id = 0;
  result.rpc_layer = "grpc";
  const auto named = named_tpu(options);
  if (const auto workers = own_slice(options, named)) {
    result.facts = {{"TPU", "the slice of this machine", workers->source}};
    resolve_slice(result, options, *workers);
    return result;
  }
  LOCKSTEP_CHECK_VALUE(named.has_value(),
                       "[TPUClusterResolver] a TPU must be named: none is; give TPUOptions::tpu, or set TPU_NAME to "
                       "its name, to \"local\", or to its addresses grpc://host:port,...");
  result.facts = {{"TPU", named->text, named->source}};
  if (named->is_local()) {
    count_devices_here(result, options);
  } else if (named->is_addresses()) {
    set_devices(result, 0, "not said by addresses");
    set_cluster(result, options, addresses_of(named->text), named->source);
  } else {
    resolve_name(result, options, *named);
  }
  return result;
}

}  // namespace

TPUClusterResolver::TPUClusterResolver(const TPUOptions& options) : FixedClusterResolver(resolve(options)) {}

}  // namespace lockstep
