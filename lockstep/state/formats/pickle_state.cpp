#include "lockstep/state/formats/pickle_state.h"

#include <algorithm>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/state/formats/safetensors_dtype.h"
#include "lockstep/state/json_values.h"

namespace lockstep::detail {
namespace {

constexpr size_t kDeepestNest = 64;
constexpr size_t kMostNames = size_t{1} << 22;

/// Puts the values of a pickle into a state.
class Flattening {
 public:
  Flattening(const std::string& place, const std::function<StateTensor(const PickleTensor&)>& make_tensor)
      : place_(place), make_tensor_(make_tensor) {}

  void add(const std::string& name, const PickleValue& value, size_t depth) {
    LOCKSTEP_CHECK_DATA(depth <= kDeepestNest, "[", place_, "] dictionaries are nested too deeply: name=", name);
    LOCKSTEP_CHECK_DATA(++visited_ <= kMostNames, "[", place_, "] there are too many values");
    if (const auto* dict = std::get_if<PickleDict>(&value.value)) return add_dict(name, *dict, depth);
    if (const auto* list = std::get_if<PickleList>(&value.value)) {
      for (size_t i = 0; i < list->items.size(); ++i) add(below(name, std::to_string(i)), *list->items[i], depth + 1);
      return;
    }
    if (std::holds_alternative<PickleNone>(value.value)) return;
    LOCKSTEP_CHECK_DATA(!name.empty(), "[", place_, "] must be a dictionary; save state_dict()");
    LOCKSTEP_CHECK_DATA(!state_.has(name), "[", place_, "] a name is there twice: name=", name);
    if (const auto* flag = std::get_if<bool>(&value.value)) return state_.set(name, *flag);
    if (const auto* integer = std::get_if<int64_t>(&value.value)) return state_.set(name, *integer);
    if (const auto* number = std::get_if<double>(&value.value)) return state_.set(name, *number);
    if (const auto* text = std::get_if<std::string>(&value.value)) return state_.set(name, *text);
    if (const auto* tensor = std::get_if<PickleTensor>(&value.value)) return state_.set(name, make_tensor_(*tensor));
    const auto* global = std::get_if<PickleGlobal>(&value.value);
    const bool dtype = global != nullptr && global->name.starts_with("torch.") &&
                       dtype_of_name(std::string_view(global->name).substr(6)).has_value();
    LOCKSTEP_CHECK_DATA(dtype, "[", place_, "] a value must be a tensor, a number or a text: name=", name,
                        global != nullptr ? ", class=" + global->name : "");
    state_.set(name, global->name);
  }

  State take() { return std::move(state_); }

 private:
  static std::string below(const std::string& parent, const std::string& child) {
    return parent.empty() ? child : parent + "." + child;
  }

  void add_dict(const std::string& name, const PickleDict& dict, size_t depth) {
    for (const auto& [key, value] : dict.items) {
      const auto* const text = std::get_if<std::string>(&key->value);
      const auto* const integer = std::get_if<int64_t>(&key->value);
      LOCKSTEP_CHECK_DATA(text != nullptr || integer != nullptr, "[", place_,
                          "] names in a dictionary must be texts or integers: dictionary=", name);
      const std::string child = text != nullptr ? *text : std::to_string(*integer);
      LOCKSTEP_CHECK_DATA(!child.empty(), "[", place_, "] a name is empty: dictionary=", name);
      add(below(name, child), *value, depth + 1);
    }
  }

  const std::string& place_;
  const std::function<StateTensor(const PickleTensor&)>& make_tensor_;
  size_t visited_ = 0;
  State state_;
};

at::ScalarType dtype_of(const PickleTensor& tensor, const std::string& place) {
  constexpr std::string_view kSuffix = "Storage";
  std::optional<at::ScalarType> dtype;
  if (!tensor.dtype.empty()) {
    dtype = dtype_of_name(tensor.dtype);
  } else if (tensor.storage.type.ends_with(kSuffix)) {
    dtype = dtype_of_libtorch_name(tensor.storage.type.substr(0, tensor.storage.type.size() - kSuffix.size()));
  }
  LOCKSTEP_CHECK_DATA(dtype.has_value(), "[", place, "] this LibTorch has no such dtype: storage=", tensor.storage.type,
                      tensor.dtype.empty() ? "" : ", dtype=", tensor.dtype);
  return *dtype;
}

}  // namespace

State flatten_pickle(const Pickle& pickle, const std::string& place,
                     const std::function<StateTensor(const PickleTensor&)>& make_tensor) {
  Flattening flattening(place, make_tensor);
  LOCKSTEP_CHECK_DATA(std::holds_alternative<PickleDict>(pickle.top().value), "[", place,
                      "] must be a dictionary; save state_dict()");
  flattening.add("", pickle.top(), 0);
  return flattening.take();
}

TensorExtent extent_of(const PickleTensor& tensor, const std::string& place) {
  TensorExtent extent{dtype_of(tensor, place), 1, true};
  const auto element = static_cast<int64_t>(c10::elementSize(extent.dtype));
  const bool sound = tensor.offset >= 0 && tensor.storage.numel >= 0 &&
                     std::all_of(tensor.sizes.begin(), tensor.sizes.end(), [](int64_t size) { return size >= 0; });
  LOCKSTEP_CHECK_DATA(sound, "[", place, "] sizes and offsets of a tensor must be at least 0");
  const int64_t numel = checked_numel(tensor.sizes, 8 * element, place);
  int64_t expected = 1;
  bool fits = true;
  for (size_t i = tensor.sizes.size(); i-- > 0;) {
    const int64_t size = tensor.sizes[i];
    if (size == 1) continue;
    extent.contiguous = extent.contiguous && (numel == 0 || tensor.strides[i] == expected);
    expected *= size;
    int64_t further = 0;
    fits = fits && tensor.strides[i] >= 0 &&
           (numel == 0 || !__builtin_mul_overflow(size - 1, tensor.strides[i], &further));
    fits = fits && !__builtin_add_overflow(extent.reached, further, &extent.reached);
  }
  if (numel == 0) extent.reached = 0;
  const int64_t storage = tensor.storage.numel / (tensor.dtype.empty() ? 1 : element);
  fits = fits && tensor.offset <= storage && extent.reached <= storage - tensor.offset;
  int64_t storage_bytes = 0;
  fits = fits && !__builtin_mul_overflow(tensor.storage.numel, element, &storage_bytes);
  LOCKSTEP_CHECK_DATA(fits, "[", place, "] a tensor must be inside its storage: storage=", tensor.storage.key,
                      ", elements=", tensor.storage.numel, ", offset=", tensor.offset);
  return extent;
}

}  // namespace lockstep::detail
