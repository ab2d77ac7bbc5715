#include "lockstep/state/load_plan.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "lockstep/base/dtype_name.h"
#include "lockstep/base/error.h"

namespace lockstep::detail {
namespace {

std::string shape_text(const std::vector<int64_t>& sizes) { return c10::str(at::IntArrayRef(sizes)); }

const char* kind_of(const State::Value& value) {
  constexpr const char* kKindNames[] = {"flag", "integer", "number", "text", "tensor"};
  return kKindNames[value.index()];
}

}  // namespace

std::string LoadPlan::Part::full(const std::string& name) const {
  if (parent_.empty()) return name;
  return name.empty() ? parent_ : parent_ + "." + name;
}

LoadPlan::Part LoadPlan::Part::below(const std::string& child) const { return {*plan_, full(child)}; }

bool LoadPlan::Part::has(const std::string& name) const { return plan_->state_.has(full(name)); }

const State::Value* LoadPlan::Part::find(const std::string& name) const { return plan_->state_.find(full(name)); }

std::vector<std::string> LoadPlan::Part::names() const {
  std::vector<std::string> names;
  const std::string start = parent_.empty() ? "" : parent_ + ".";
  for (const auto& [name, value] : plan_->state_) {
    if (name.starts_with(start)) names.push_back(name.substr(start.size()));
  }
  return names;
}

const State::Value* LoadPlan::Part::want_value(const std::string& name, const char* kind) {
  const std::string whole = full(name);
  const State::Value* const value = plan_->state_.find(whole);
  if (value == nullptr) {
    plan_->result_.missing.push_back(whole);
    return nullptr;
  }
  plan_->used_.insert(whole);
  const std::string found = kind_of(*value);
  if (found != kind && !(found == "integer" && std::string(kind) == "number")) {
    unfitting(name, c10::str(found, " in the state, ", kind, " of the object"));
    return nullptr;
  }
  return value;
}

const StateTensor* LoadPlan::Part::want_tensor(const std::string& name, at::ScalarType dtype,
                                               const std::vector<int64_t>* sizes) {
  const State::Value* const value = want_value(name, "tensor");
  if (value == nullptr) return nullptr;
  const auto& tensor = std::get<StateTensor>(*value);
  if (sizes != nullptr && tensor.sizes != *sizes) {
    unfitting(name,
              c10::str("shape ", shape_text(tensor.sizes), " in the state, ", shape_text(*sizes), " of the object"));
    return nullptr;
  }
  if (tensor.dtype != dtype) {
    unfitting(name, c10::str(dtype_name(tensor.dtype), " in the state, ", dtype_name(dtype), " of the object"));
    return nullptr;
  }
  return &tensor;
}

int64_t LoadPlan::Part::integer_or(const std::string& name, int64_t otherwise) {
  const State::Value* const value = want_value(name, "integer");
  return value == nullptr ? otherwise : std::get<int64_t>(*value);
}

double LoadPlan::Part::number_or(const std::string& name, double otherwise) {
  const State::Value* const value = want_value(name, "number");
  if (value == nullptr) return otherwise;
  const auto* const integer = std::get_if<int64_t>(value);
  return integer != nullptr ? static_cast<double>(*integer) : std::get<double>(*value);
}

std::string LoadPlan::Part::text_or(const std::string& name, const std::string& otherwise) {
  const State::Value* const value = want_value(name, "text");
  return value == nullptr ? otherwise : std::get<std::string>(*value);
}

void LoadPlan::Part::read(const std::string& name, at::ScalarType dtype, const std::vector<int64_t>& sizes,
                          MakeTargets targets) {
  const StateTensor* const from = want_tensor(name, dtype, &sizes);
  if (from != nullptr) plan_->reads_.push_back({from, std::move(targets)});
}

void LoadPlan::Part::read(const std::string& name, const at::Tensor& target) {
  const at::Tensor plain = target.detach();
  read(name, plain.scalar_type(), plain.sizes().vec(), [plan = plan_, plain] {
    if (plain.is_contiguous()) return std::vector<StatePiece>{{0, plain.view(-1)}};
    const at::Tensor copy = at::empty(plain.sizes(), plain.options().memory_format(at::MemoryFormat::Contiguous));
    plan->finish_reads_.push_back([plain, copy] { at::Tensor(plain).copy_(copy); });
    return std::vector<StatePiece>{{0, copy.view(-1)}};
  });
}

void LoadPlan::Part::unfitting(const std::string& name, const std::string& why) {
  plan_->used_.insert(full(name));
  plan_->result_.unfitting.push_back(full(name) + ": " + why);
}

void LoadPlan::Part::ignore(const std::string& name) { plan_->used_.insert(full(name)); }

State LoadPlan::Part::take_all() {
  for (const std::string& name : names()) ignore(name);
  return parent_.empty() ? plan_->state_ : plan_->state_.below(parent_);
}

LoadResult LoadPlan::problems() const {
  LoadResult result = result_;
  for (const auto& [name, value] : state_) {
    if (!used_.contains(name)) result.unexpected.push_back(name);
  }
  return result;
}

LoadResult LoadPlan::check(const LoadOptions& options) const {
  LoadResult result = problems();
  LOCKSTEP_CHECK_VALUE(!options.strict || result.complete(),
                       "[load_state] the state must have all values of the objects, and no others; nothing was loaded:",
                       result.str(), "\n  load with {.strict = false} to take what fits");
  return result;
}

void LoadPlan::read(progress::Task* task) {
  std::vector<TensorRead> reads;
  reads.reserve(reads_.size());
  for (const Read& read : reads_) reads.push_back({read.from, read.targets()});
  read_tensors(reads, task);
}

void LoadPlan::finish() {
  for (const auto& finish : finish_reads_) finish();
  for (const auto& finish : finish_) finish();
}

LoadResult LoadPlan::execute(const LoadOptions& options) {
  LoadResult result = check(options);
  read();
  finish();
  return result;
}

}  // namespace lockstep::detail
