#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <typeinfo>

#include <ATen/ATen.h>
#include <torch/optim/lbfgs.h>

#include "lockstep/base/error.h"
#include "lockstep/state/flip_bits.h"
#include "lockstep/strategy/optimizer/optimizer_core_state.h"
#include "lockstep/strategy/optimizer/update/rows/row_kernel.h"
#include "lockstep/strategy/state/group_options.h"
#include "lockstep/strategy/state/optimizer_state.h"

namespace lockstep::detail {
namespace {

/// What is loaded for one parameter.
struct LoadedParameter {
  UpdateMethod method = UpdateMethod::Replicated;
  bool by_rows = false;
  /// Whether there are values: otherwise it is as before its first update.
  bool has_values = false;
  /// The tensors as a whole, for updates by rows and of whole parameters, and the numbers.
  ParameterState whole = {};
  /// For each local replica, the state of each of its chunks.
  std::vector<std::vector<ParameterState>> chunks = {};
  /// What tensors of elements are converted to after they have been read.
  std::optional<at::ScalarType> dtype = {};

  bool is_in_chunks() const { return method == UpdateMethod::Sharded || method == UpdateMethod::Divided; }

  void convert() {
    if (!dtype) return;
    const auto convert_all = [&](ParameterState& state) {
      for (auto& [name, tensor] : state.tensors) tensor = tensor.to(*dtype);
    };
    convert_all(whole);
    for (auto& states : chunks) std::for_each(states.begin(), states.end(), convert_all);
  }
};

at::Tensor on_device_of(const at::Tensor& loaded, const at::Tensor& parameter, bool is_copy) {
  return loaded.to(parameter.device(), loaded.scalar_type(), /*non_blocking=*/false, is_copy);
}

/// What a class of the user has saved for a parameter: all values that follow its name directly.
std::vector<std::string> names_after(const LoadPlan::Part& part, const std::string& parameter) {
  std::vector<std::string> found;
  const std::string start = parameter + ".";
  for (const std::string& name : part.names()) {
    if (name.starts_with(start) && name.find('.', start.size()) == std::string::npos) {
      found.push_back(name.substr(start.size()));
    }
  }
  return found;
}

class OptimizerLoad : public std::enable_shared_from_this<OptimizerLoad> {
 public:
  explicit OptimizerLoad(std::shared_ptr<OptimizerCoreState> core)
      : core_(std::move(core)), schema_(state_schema(core_->prototype.kind())), all_(core_->plan.groups.size()) {}

  void plan(LoadPlan::Part part) {
    const auto& groups = core_->prototype.groups();
    for (size_t g = 0; g < groups.size(); ++g) {
      options_.push_back(load_group_options(groups[g].options(), part.below(c10::str("group.", g))));
    }
    const std::vector<std::string> names = parameter_names(*core_);
    for (size_t p = 0; p < names.size(); ++p) plan_parameter(part, p, names[p]);
    part.after([self = shared_from_this()] { self->finish(); });
  }

 private:
  const at::Tensor& stored(size_t p) const { return core_->tensors[0].stored[p]; }

  void plan_parameter(LoadPlan::Part& part, size_t p, const std::string& name) {
    LoadedParameter& loaded = all_[p];
    loaded.chunks.resize(core_->replicas.size());
    if (part.has(name + ".rows")) {
      const State::Value* const rows = part.want_value(name + ".rows", "flag");
      loaded.by_rows = rows != nullptr && std::get<bool>(*rows);
    }
    loaded.method = core_->plan.methods[p];
    const bool can_be_rows = core_->rows_known && stored(p).dim() > 0 && stored(p).is_contiguous();
    if (loaded.by_rows && can_be_rows && loaded.method == UpdateMethod::Sharded) loaded.method = UpdateMethod::Rows;
    switch (schema_.kind) {
      case StateSchema::Kind::Elements:
        return has_own_state(part, name) ? plan_serialized(part, p, name) : plan_elements(part, p, name);
      case StateSchema::Kind::Lbfgs:
        return plan_lbfgs(part, p, name);
      case StateSchema::Kind::Serialized:
        return plan_serialized(part, p, name);
    }
  }

  /// A class that is derived from one of LibTorch's may have a state of its own.
  bool has_own_state(const LoadPlan::Part& part, const std::string& name) const {
    if (RowUpdate::knows(core_->prototype.kind())) return false;
    ParameterState names;
    for (const std::string& field : names_after(part, name)) {
      if (field == "rows") continue;
      const State::Value* const value = part.find(name + "." + field);
      if (std::holds_alternative<StateTensor>(*value)) {
        names.tensors.emplace(field, at::Tensor());
      } else {
        names.integers[field] = 0;
      }
    }
    return !has_only(schema_, names);
  }

  void plan_elements(LoadPlan::Part& part, size_t p, const std::string& name) {
    LoadedParameter& loaded = all_[p];
    const auto has = [&](const std::string& field) { return part.has(name + "." + field); };
    loaded.has_values =
        std::any_of(schema_.tensors.begin(), schema_.tensors.end(), has) || (schema_.has_step && has("step"));
    if (!loaded.has_values) return;
    const at::ScalarType dtype = loaded.method == UpdateMethod::Rows ? row_kernel(stored(p).scalar_type()).block_dtype()
                                                                     : stored(p).scalar_type();
    loaded.dtype = dtype;
    const std::vector<int64_t> sizes = stored(p).sizes().vec();
    std::vector<std::pair<std::string, at::ScalarType>> fields;
    for (const std::string& field : schema_.tensors) {
      if (!has(field) && !is_needed(field, *options_[core_->plan.groups[p]])) continue;
      const at::ScalarType saved = saved_dtype(part, p, name + "." + field, dtype);
      if (part.want_tensor(name + "." + field, saved, &sizes) == nullptr) loaded.has_values = false;
      fields.emplace_back(field, saved);
    }
    if (schema_.has_step) {
      const State::Value* const step = part.want_value(name + ".step", "integer");
      if (step == nullptr) {
        loaded.has_values = false;
      } else {
        loaded.whole.integers["step"] = std::get<int64_t>(*step);
      }
    }
    // A part of a state is of no use: such a parameter is as before its first update.
    if (!loaded.has_values) return;
    for (const auto& [field, saved] : fields) read_elements(part, p, name, field, saved);
  }

  /// Rows of a table of narrow numbers have a wider state than the table as a whole: either is taken.
  at::ScalarType saved_dtype(const LoadPlan::Part& part, size_t p, const std::string& name,
                             at::ScalarType wanted) const {
    const State::Value* const value = part.find(name);
    const auto* const saved = value == nullptr ? nullptr : std::get_if<StateTensor>(value);
    if (saved == nullptr || !all_[p].by_rows) return wanted;
    const at::ScalarType own = stored(p).scalar_type();
    const bool is_known = saved->dtype == own || saved->dtype == row_kernel(own).block_dtype();
    return is_known ? saved->dtype : wanted;
  }

  void read_elements(LoadPlan::Part& part, size_t p, const std::string& name, const std::string& field,
                     at::ScalarType dtype) {
    part.read(name + "." + field, dtype, stored(p).sizes().vec(), [self = shared_from_this(), p, field, dtype] {
      return self->all_[p].is_in_chunks() ? self->make_chunks(p, field, dtype)
                                          : self->make_whole(p, field, dtype, self->stored(p).sizes());
    });
  }

  /// Memory for a field of a chunk: what it has already, which costs no page faults, or a new one.
  at::Tensor chunk_memory(const ShardedUpdate::ChunkState& chunk, size_t replica, const std::string& field,
                          at::ScalarType dtype) const {
    if (chunk.optimizer != nullptr && schema_.kind == StateSchema::Kind::Elements) {
      const ParameterState present = read_parameter_state(*chunk.optimizer, chunk.parameter);
      const auto found = present.tensors.find(field);
      const bool fits = found != present.tensors.end() && found->second.numel() == chunk.where.size() &&
                        found->second.scalar_type() == dtype && found->second.is_contiguous();
      if (fits) return found->second.view(-1);
    }
    const c10::Device device = core_->tensors[replica].stored[chunk.where.parameter].device();
    return at::empty({chunk.where.size()}, at::TensorOptions().dtype(dtype).device(device));
  }

  std::vector<StatePiece> make_chunks(size_t p, const std::string& field, at::ScalarType dtype) {
    std::vector<StatePiece> targets;
    for (size_t r = 0; r < core_->replicas.size(); ++r) {
      const auto chunks = core_->replicas[r]->chunks_of(p);
      all_[p].chunks[r].resize(chunks.size());
      for (size_t i = 0; i < chunks.size(); ++i) {
        const at::Tensor values = chunk_memory(chunks[i], r, field, dtype);
        all_[p].chunks[r][i].tensors[field] = values;
        targets.push_back({chunks[i].where.begin, values});
      }
    }
    return targets;
  }

  std::vector<StatePiece> make_whole(size_t p, const std::string& field, at::ScalarType dtype, at::IntArrayRef sizes) {
    const bool is_table = all_[p].method == UpdateMethod::Rows;
    // Compiled devices get their copies when everything has been read.
    const c10::Device device = stored(p).device().is_cuda() ? stored(p).device() : c10::Device(c10::kCPU);
    const at::Tensor values =
        is_table ? lazy_zeros(sizes, dtype) : at::empty(sizes, at::TensorOptions().dtype(dtype).device(device));
    all_[p].whole.tensors[field] = values;
    return {{0, values.view({-1})}};
  }

  void read_whole(LoadPlan::Part& part, size_t p, const std::string& name, const std::string& field,
                  const std::vector<int64_t>* sizes) {
    const StateTensor* const from = part.want_tensor(name + "." + field, stored(p).scalar_type(), sizes);
    if (from == nullptr) return;
    part.read(name + "." + field, from->dtype, from->sizes,
              [self = shared_from_this(), p, field, dtype = from->dtype, shape = from->sizes] {
                return self->make_whole(p, field, dtype, shape);
              });
  }

  void plan_lbfgs(LoadPlan::Part& part, size_t p, const std::string& name) {
    LoadedParameter& loaded = all_[p];
    loaded.has_values = part.has(name + ".n_iter");
    if (!loaded.has_values) return;
    int64_t elements = 0;
    for (const at::Tensor& parameter : core_->tensors[0].stored) elements += parameter.numel();
    const std::vector<int64_t> flat{elements};
    const auto read_list = [&](const char* list, const std::vector<int64_t>* sizes) {
      for (size_t i = 0; part.has(c10::str(name, ".", list, ".", i)); ++i) {
        read_whole(part, p, name, c10::str(list, ".", i), sizes);
      }
    };
    for (const char* field : {"d", "prev_flat_grad"}) {
      if (part.has(c10::str(name, ".", field))) read_whole(part, p, name, field, &flat);
    }
    if (part.has(name + ".H_diag")) read_whole(part, p, name, "H_diag", nullptr);
    read_list("old_dirs", &flat);
    read_list("old_stps", &flat);
    read_list("ro", nullptr);
    read_list("al", nullptr);
    for (const char* field : {"func_evals", "n_iter"}) {
      loaded.whole.integers[field] = part.integer_or(c10::str(name, ".", field), 0);
    }
    for (const char* field : {"t", "prev_loss"}) {
      loaded.whole.numbers[field] = part.number_or(c10::str(name, ".", field), 0);
    }
  }

  void plan_serialized(LoadPlan::Part& part, size_t p, const std::string& name) {
    LoadedParameter& loaded = all_[p];
    for (const std::string& field : names_after(part, name)) {
      if (field == "rows") continue;
      const auto& kind = core_->prototype.kind();
      LOCKSTEP_CHECK_IMPLEMENTED(stored(p).device().type() != c10::DeviceType::XLA,
                                 "[load_state] LibTorch cannot load the state of a class of the user on this device: ",
                                 "class=", c10::demangle(typeid(kind).name()), ", device=", stored(p).device());
      loaded.has_values = true;
      if (const State::Value* number = part.find(name + "." + field); std::holds_alternative<int64_t>(*number)) {
        loaded.whole.integers[field] = part.integer_or(name + "." + field, 0);
      } else if (std::holds_alternative<double>(*number)) {
        loaded.whole.numbers[field] = part.number_or(name + "." + field, 0);
      } else if (loaded.is_in_chunks()) {
        read_elements(part, p, name, field, stored(p).scalar_type());
      } else {
        read_whole(part, p, name, field, nullptr);
      }
    }
  }

  /// After everything has been read.
  void finish() {
    OptimizerCoreState& core = *core_;
    for (LoadedParameter& loaded : all_) loaded.convert();
    auto& groups = core.prototype.front().param_groups();
    for (size_t g = 0; g < groups.size(); ++g) groups[g].set_options(std::move(options_[g]));
    for (size_t r = 0; r < core.replicas.size(); ++r) {
      OptimizerReplica& replica = *core.replicas[r];
      std::vector<ParameterState> whole(all_.size());
      if (replica.divided) replica.divided->drop_state();
      for (size_t p = 0; p < all_.size(); ++p) {
        const LoadedParameter& loaded = all_[p];
        const bool is_dense = loaded.method == UpdateMethod::Sharded && loaded.has_values;
        replica.methods.set_loaded(p, loaded.method, is_dense);
        finish_chunks(replica, p);
        finish_rows(replica, p);
        if (loaded.method == UpdateMethod::Replicated && loaded.has_values) whole[p] = whole_state(replica, p);
      }
      replica.whole->load(whole);
    }
    for (size_t p = 0; p < all_.size(); ++p) {
      core.rows_elsewhere[p] = all_[p].by_rows && all_[p].method != UpdateMethod::Rows ? 1 : 0;
      if (all_[p].has_values || all_[p].by_rows) core.has_stepped = true;
    }
    ++core.num_loads;
  }

  void finish_chunks(OptimizerReplica& replica, size_t p) {
    LoadedParameter& loaded = all_[p];
    const bool is_sharded = loaded.method == UpdateMethod::Sharded && loaded.has_values;
    const bool is_divided = loaded.method == UpdateMethod::Divided && loaded.has_values;
    const at::Tensor memory = is_sharded ? replica.tensors.values_to_update(p) : at::Tensor();
    auto chunks = replica.sharded.renew(p, memory);
    if (is_divided) chunks = replica.divided->renew(p);
    if (!is_sharded && !is_divided) return;
    std::vector<ParameterState>& states = loaded.chunks[static_cast<size_t>(replica.index)];
    states.resize(chunks.size());
    for (size_t i = 0; i < chunks.size(); ++i) {
      states[i].integers = loaded.whole.integers;
      states[i].numbers = loaded.whole.numbers;
      write_parameter_state(*chunks[i].optimizer, chunks[i].parameter, states[i], core_->prototype,
                            core_->plan.groups[p]);
    }
  }

  void finish_rows(OptimizerReplica& replica, size_t p) {
    const LoadedParameter& loaded = all_[p];
    replica.tables.drop(p);
    if (loaded.method != UpdateMethod::Rows || !loaded.has_values) return;
    std::array<at::Tensor, StateFields::kMax> memory;
    const auto step = loaded.whole.integers.find("step");
    for (size_t field = 0; field < schema_.tensors.size(); ++field) {
      const auto found = loaded.whole.tensors.find(schema_.tensors[field]);
      if (found != loaded.whole.tensors.end()) memory[field] = memory_of(replica, p, field, found->second);
    }
    replica.tables.load(p, step == loaded.whole.integers.end() ? 1 : step->second, memory);
  }

  /// The memory of a table's field: one for the replicas that have it in common, otherwise a copy for each.
  at::Tensor memory_of(const OptimizerReplica& replica, size_t p, size_t field, const at::Tensor& values) {
    at::Tensor& first = row_memory_[{p, field}];
    if (!first.defined()) {
      const double untouched = RowState(core_->prototype.kind(), {0}, at::kFloat, {}).untouched();
      first = values;
      flip_bits(first, untouched_bits(untouched, first.scalar_type()));
      return first;
    }
    return replica.tables.shares_state() ? first : first.clone();
  }

  ParameterState whole_state(const OptimizerReplica& replica, size_t p) const {
    ParameterState state = all_[p].whole;
    // What is stored once is updated by the first replica.
    if (replica.tensors.stored_once && replica.index != 0) return {};
    const at::Tensor& parameter = replica.tensors.stored[p];
    for (auto& [name, tensor] : state.tensors) {
      tensor = on_device_of(tensor, parameter, replica.index != 0);
      const bool is_element_wise = tensor.sizes() == parameter.sizes() && !parameter.is_contiguous();
      if (is_element_wise) tensor = at::empty_like(parameter.detach(), tensor.scalar_type()).copy_(tensor);
    }
    return state;
  }

  std::shared_ptr<OptimizerCoreState> core_;
  StateSchema schema_;
  std::vector<LoadedParameter> all_;
  std::vector<std::unique_ptr<torch::optim::OptimizerOptions>> options_;
  std::map<std::pair<size_t, size_t>, at::Tensor> row_memory_;
};

}  // namespace

void plan_optimizer_load(const std::shared_ptr<OptimizerCoreState>& core, LoadPlan::Part part) {
  core->follow_parameters();
  std::make_shared<OptimizerLoad>(core)->plan(part);
}

}  // namespace lockstep::detail
