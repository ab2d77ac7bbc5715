#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/api.h"

/// Internal: reads pickles of numbers, texts, lists, dictionaries and tensors. Nothing is executed: classes and
/// functions are names, and the few that tensors need are known here.
namespace lockstep::detail {

struct PickleValue;
using PickleRef = const PickleValue*;

struct PickleNone {};
/// Lists and tuples.
struct PickleList {
  std::vector<PickleRef> items;
};
struct PickleDict {
  std::vector<std::pair<PickleRef, PickleRef>> items;
};
/// "torch._utils._rebuild_tensor_v2"
struct PickleGlobal {
  std::string name;
};
/// The argument of a persistent id.
struct PickleStorage {
  /// "FloatStorage"
  std::string type;
  std::string key;
  int64_t numel = 0;
};
struct PickleTensor {
  PickleStorage storage;
  /// "float8_e4m3fn" of tensors whose storage has no type; its numel is then bytes.
  std::string dtype;
  int64_t offset = 0;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
};

struct PickleValue {
  std::variant<PickleNone, bool, int64_t, double, std::string, PickleList, PickleDict, PickleGlobal, PickleStorage,
               PickleTensor>
      value;
};

/// A pickle and all values in it.
class LOCKSTEP_API Pickle {
 public:
  /// DataError with `place` and the offset where it is damaged or has a class that is not known.
  Pickle(std::string_view bytes, const std::string& place);

  const PickleValue& top() const { return *top_; }

 private:
  /// Values refer to each other, also in circles: they live as long as the pickle.
  std::deque<PickleValue> values_;
  PickleRef top_ = nullptr;
};

}  // namespace lockstep::detail
