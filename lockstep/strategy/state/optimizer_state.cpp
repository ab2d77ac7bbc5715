#include "lockstep/strategy/state/optimizer_state.h"

#include <algorithm>
#include <map>
#include <set>
#include <typeinfo>

#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "lockstep/strategy/optimizer/optimizer_core.h"
#include "lockstep/strategy/optimizer/optimizer_core_state.h"
#include "lockstep/strategy/run_replicas.h"
#include "lockstep/strategy/state/group_options.h"
#include "lockstep/strategy/state/state_object.h"
#include "lockstep/strategy/state/worker_pieces.h"

namespace lockstep::detail {
namespace {

/// The state of one parameter, with the pieces of its tensors that this process holds.
struct SavedParameter {
  std::map<std::string, StateTensor> tensors = {};
  std::map<std::string, int64_t> integers = {};
  std::map<std::string, double> numbers = {};
};

void add_numbers(const ParameterState& from, SavedParameter& saved) {
  saved.integers.insert(from.integers.begin(), from.integers.end());
  saved.numbers.insert(from.numbers.begin(), from.numbers.end());
}

/// Adds the state of the elements of a chunk.
void add_chunk(const UpdateChunk& where, const ParameterState& state, const std::vector<int64_t>& sizes,
               SavedParameter& saved) {
  add_numbers(state, saved);
  for (const auto& [name, values] : state.tensors) {
    LOCKSTEP_CHECK_IMPLEMENTED(values.numel() == where.size(),
                               "[optimizer state] a tensor in the state of an elementwise optimizer must have one ",
                               "value for each element: name=", name, ", shape=", values.sizes(),
                               ", elements=", where.size(), "; do not set kElementwise for this class");
    StateTensor& tensor = saved.tensors[name];
    tensor.dtype = values.scalar_type();
    tensor.sizes = sizes;
    tensor.pieces.push_back({where.begin, values.detach().contiguous()});
  }
}

SavedParameter save_chunks(const OptimizerCoreState& core, size_t p) {
  SavedParameter saved;
  const std::vector<int64_t> sizes = core.tensors[0].stored[p].sizes().vec();
  for (const auto& replica : core.replicas) {
    for (const auto& chunk : replica->chunks_of(p)) {
      if (chunk.optimizer == nullptr) continue;
      add_chunk(chunk.where, read_parameter_state(*chunk.optimizer, chunk.parameter), sizes, saved);
    }
  }
  for (auto& [name, tensor] : saved.tensors) {
    std::sort(tensor.pieces.begin(), tensor.pieces.end(),
              [](const StatePiece& a, const StatePiece& b) { return a.begin < b.begin; });
  }
  return saved;
}

SavedParameter save_rows(const OptimizerCoreState& core, const StateSchema& schema, size_t p) {
  SavedParameter saved;
  const RowState* const rows = core.replicas[0]->tables.state_of(p);
  if (rows == nullptr || rows->steps() == 0) return saved;
  for (size_t field = 0; field < schema.tensors.size(); ++field) {
    const at::Tensor& table = rows->table(static_cast<int>(field));
    if (!table.defined()) continue;
    StateTensor tensor(table);
    tensor.pieces[0].flipped = untouched_bits(rows->untouched(), table.scalar_type());
    saved.tensors.emplace(schema.tensors[field], std::move(tensor));
  }
  if (schema.has_step) saved.integers["step"] = rows->steps();
  return saved;
}

SavedParameter save_whole(const OptimizerCoreState& core, size_t p) {
  SavedParameter saved;
  const ParameterState state = core.replicas[0]->whole->state_of(p);
  add_numbers(state, saved);
  for (const auto& [name, tensor] : state.tensors) saved.tensors.emplace(name, StateTensor(tensor));
  return saved;
}

/// Whether other workers own chunks of a parameter.
bool has_owners_elsewhere(const OptimizerCoreState& core, size_t p) {
  switch (core.replicas[0]->methods[p]) {
    case UpdateMethod::Sharded:
      return core.replicas[0]->scope.num_readers > static_cast<int>(core.replicas.size());
    case UpdateMethod::Divided:
      return core.strategy->num_workers() > 1;
    case UpdateMethod::Rows:
    case UpdateMethod::Replicated:
      break;
  }
  return false;
}

/// Whether the state is one of LibTorch's classes.
bool is_known(const StateSchema& schema, const SavedParameter& saved) {
  ParameterState names{.tensors = {}, .integers = saved.integers, .numbers = saved.numbers};
  for (const auto& [name, tensor] : saved.tensors) names.tensors.emplace(name, at::Tensor());
  return schema.kind == StateSchema::Kind::Elements && has_only(schema, names);
}

/// What the chunks of a parameter have that one worker owns, as numbers of which the largest holds for all: 0 where it
/// owns none.
struct ChunkSummary {
  static constexpr int64_t kColumns = 3;
  static constexpr int64_t kUnknown = int64_t{1} << 40;

  int64_t fields = 0;
  int64_t dtype = 0;
  int64_t steps = 0;

  ChunkSummary(const StateSchema& schema, const SavedParameter& saved) {
    if (!is_known(schema, saved)) fields = kUnknown;
    for (size_t i = 0; i < schema.tensors.size(); ++i) {
      const auto found = saved.tensors.find(schema.tensors[i]);
      if (found == saved.tensors.end()) continue;
      fields |= int64_t{1} << i;
      dtype = static_cast<int64_t>(found->second.dtype) + 1;
    }
    if (const auto step = saved.integers.find("step"); step != saved.integers.end()) steps = step->second + 1;
  }
};

/// Collective: workers tell each other what the chunks that they own have, so that all name the same values. A worker
/// may own no chunk of a small parameter.
void agree_on_chunks(const OptimizerCoreState& core, const StateSchema& schema, std::vector<SavedParameter>& all) {
  const auto num_parameters = static_cast<int64_t>(all.size());
  at::Tensor table = at::zeros({num_parameters, ChunkSummary::kColumns}, at::device(at::kCPU).dtype(at::kLong));
  auto own = table.accessor<int64_t, 2>();
  for (int64_t p = 0; p < num_parameters; ++p) {
    if (!has_owners_elsewhere(core, static_cast<size_t>(p))) continue;
    const ChunkSummary summary(schema, all[static_cast<size_t>(p)]);
    own[p][0] = summary.fields;
    own[p][1] = summary.dtype;
    own[p][2] = summary.steps;
  }
  const comm::CollectiveOwnerScope owner(core.owner("state"));
  table = core.strategy->worker_group()->all_reduce(table, ReduceOp::Max).contiguous();
  const auto agreed = table.accessor<int64_t, 2>();
  for (int64_t p = 0; p < num_parameters; ++p) {
    const auto parameter = static_cast<size_t>(p);
    if (!has_owners_elsewhere(core, parameter)) continue;
    const auto& kind = core.prototype.kind();
    LOCKSTEP_CHECK_IMPLEMENTED(agreed[p][0] < ChunkSummary::kUnknown,
                               "[optimizer state] workers cannot save the state of a class of the user that they ",
                               "divide: class=", c10::demangle(typeid(kind).name()),
                               "; do not set kElementwise for it, or use messages between workers ",
                               "(LOCKSTEP_ENGINE=gloo) without Shard");
    if (agreed[p][2] > 0) all[parameter].integers["step"] = agreed[p][2] - 1;
    for (size_t field = 0; field < schema.tensors.size(); ++field) {
      if ((agreed[p][0] >> field & 1) == 0) continue;
      StateTensor& tensor = all[parameter].tensors[schema.tensors[field]];
      tensor.dtype = static_cast<at::ScalarType>(agreed[p][1] - 1);
      tensor.sizes = core.tensors[0].stored[parameter].sizes().vec();
      gather_from_workers(core.strategy, tensor);
    }
  }
}

class OptimizerObject final : public StateObject {
 public:
  explicit OptimizerObject(std::shared_ptr<OptimizerCoreState> core) : core_(std::move(core)) {}

  State state() const override {
    check_cross_replica(*core_->strategy, "optimizer state", "call it outside of `run`");
    return save_optimizer(*core_);
  }
  void plan_load(LoadPlan::Part part) override {
    check_cross_replica(*core_->strategy, "load_state", "load it outside of `run`");
    plan_optimizer_load(core_, part);
  }
  std::shared_ptr<StrategyImpl> strategy() const override { return core_->strategy; }

 private:
  std::shared_ptr<OptimizerCoreState> core_;
};

}  // namespace

std::vector<std::string> parameter_names(const OptimizerCoreState& core) {
  std::vector<std::string> names;
  std::set<std::string> taken;
  for (size_t p = 0; p < core.plan.groups.size(); ++p) {
    const std::string name = parameter_name(core.tensors[0].names, p);
    std::string different = name;
    for (int i = 1; !taken.insert(different).second; ++i) different = c10::str(name, "_", i);
    names.push_back(different);
  }
  return names;
}

State save_optimizer(const OptimizerCoreState& core) {
  const StateSchema schema = state_schema(core.prototype.kind());
  const std::vector<std::string> names = parameter_names(core);
  std::vector<SavedParameter> all(names.size());
  for (size_t p = 0; p < names.size(); ++p) {
    switch (core.replicas[0]->methods[p]) {
      case UpdateMethod::Sharded:
      case UpdateMethod::Divided:
        all[p] = save_chunks(core, p);
        break;
      case UpdateMethod::Rows:
        all[p] = save_rows(core, schema, p);
        break;
      case UpdateMethod::Replicated:
        all[p] = save_whole(core, p);
        break;
    }
  }
  bool is_divided = false;
  for (size_t p = 0; p < names.size(); ++p) is_divided = is_divided || has_owners_elsewhere(core, p);
  if (is_divided) agree_on_chunks(core, schema, all);
  State state;
  for (size_t p = 0; p < names.size(); ++p) {
    for (auto& [name, tensor] : all[p].tensors) state.set(names[p] + "." + name, std::move(tensor));
    for (const auto& [name, number] : all[p].integers) state.set(names[p] + "." + name, State::Value(number));
    for (const auto& [name, number] : all[p].numbers) state.set(names[p] + "." + name, State::Value(number));
    const bool by_rows = core.replicas[0]->methods[p] == UpdateMethod::Rows || core.rows_elsewhere[p] != 0;
    if (by_rows) state.set(names[p] + ".rows", State::Value(true));
  }
  const auto& groups = core.prototype.groups();
  for (size_t g = 0; g < groups.size(); ++g) add_group_options(groups[g].options(), c10::str("group.", g), state);
  return state;
}

int64_t OptimizerCore::state_bytes(int replica) const {
  check_outside_of_replicas("state_bytes");
  LOCKSTEP_CHECK_INDEX(replica >= 0 && static_cast<size_t>(replica) < state_->replicas.size(),
                       "[optimizer] no such replica in this process: replica=", replica,
                       ", replicas=", state_->replicas.size());
  OptimizerReplica& held = *state_->replicas[static_cast<size_t>(replica)];
  int64_t bytes = 0;
  const auto add = [&](const ParameterState& state) {
    for (const auto& [name, tensor] : state.tensors) bytes += static_cast<int64_t>(tensor.nbytes());
  };
  for (size_t p = 0; p < state_->plan.groups.size(); ++p) {
    for (const auto& chunk : held.chunks_of(p)) {
      if (chunk.optimizer != nullptr) add(read_parameter_state(*chunk.optimizer, chunk.parameter));
    }
    if (held.methods[p] == UpdateMethod::Replicated) add(held.whole->state_of(p));
    const RowState* const rows = held.methods[p] == UpdateMethod::Rows ? held.tables.state_of(p) : nullptr;
    for (int field = 0; rows != nullptr && field < StateFields::kMax; ++field) {
      if (rows->table(field).defined()) bytes += static_cast<int64_t>(rows->table(field).nbytes());
    }
  }
  return bytes;
}

std::shared_ptr<StateObject> OptimizerCore::state_object() const { return std::make_shared<OptimizerObject>(state_); }

}  // namespace lockstep::detail
