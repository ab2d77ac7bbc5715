#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <c10/util/SmallVector.h>
#include <c10/util/intrusive_ptr.h>

#include "lockstep/api.h"
#include "lockstep/xla/graph/layout.h"
#include "lockstep/xla/graph/op.h"
#include "lockstep/xla/graph/types.h"

/// The graph that tracing makes, at the level of StableHLO. ops/build.h has the builders, which also infer shapes.
namespace lockstep::xla {

/// The data of an argument: buffers on the devices, or host data that is uploaded later. tensor/ derives from it.
struct LOCKSTEP_API ArgumentData {
  virtual ~ArgumentData() = default;
  LayoutPtr layout = nullptr;
};

struct Region;

/// Base of what holds values of the graph: storages of lazy tensors (tensor/).
class ValueHolder {
 protected:
  ~ValueHolder() = default;
};

/// A position that LibTorch was given for a slice, such as `i` of `x[i]`: where the slice begins is `value * unit`
/// behind where it begins at position 0.
struct Position {
  /// The dimension that the slice begins in.
  size_t dim = 0;
  int64_t value = 0;
  int64_t unit = 1;
  /// The largest value inside of the tensor that was cut; the least one is 0.
  int64_t most = 0;

  bool operator==(const Position& other) const {
    return dim == other.dim && value == other.value && unit == other.unit && most == other.most;
  }
};
using Positions = std::vector<Position>;

/// One value: an operation on other values. Immutable, except that a result becomes an argument once it is computed,
/// and a slice a dynamic one (`make_dynamic_slice`) before that.
struct LOCKSTEP_API Node : c10::intrusive_ptr_target {
  Op op = Op::Argument;
  /// An enumerator of UnaryOp, BinaryOp, Comparison, Combiner, SortOrder or ConvolutionUse, as `op` says; 0 for others.
  uint8_t kind = 0;
  Dtype dtype = at::kFloat;
  Shape shape;
  c10::SmallVector<c10::intrusive_ptr<Node>, 3> operands;
  /// What else determines the operation. The order is known to the builder and the writer of the operation only.
  c10::SmallVector<int64_t, 8> attributes;

  /// Number: its value; `number` for floating point, `integer` for the rest.
  double number = 0;
  int64_t integer = 0;
  /// Number: it is always an argument of the program (a seed), never a constant.
  bool always_argument = false;
  /// Position of a seed among the seeds of the run, or of a collective among its collectives; -1 for other nodes.
  int64_t ordinal = -1;

  /// Annotation: the layout.
  LayoutPtr layout = nullptr;
  /// Slice and UpdateSlice of a view, and the Numbers where they begin: what these follow from. Null for other nodes.
  std::shared_ptr<const Positions> positions;
  /// Scan: its body.
  std::shared_ptr<const Region> region;
  /// Argument: its data.
  std::unique_ptr<ArgumentData> data;

  /// The function of LibTorch that made it, for messages; a string that lives as long as the process.
  const char* origin = "";
  /// Whether it depends on a collective that has not been executed yet.
  bool needs_others = false;

  /// How many storages hold it.
  std::atomic<int> owners{0};
  /// These storages, in the order in which they took it. Guarded by the lock of their device.
  c10::SmallVector<ValueHolder*, 1> holders;
  /// Scratch of `collect`: the last collection that visited the node, and the node's position in it.
  uint32_t epoch = 0;
  uint32_t index = 0;

  Node();
  ~Node() override;
  int64_t numel() const;

  template <typename Kind>
  Kind kind_as() const {
    return static_cast<Kind>(kind);
  }
};

using Value = c10::intrusive_ptr<Node>;

/// For messages: "unary exponential -> tensor<4xf32> (traced from aten::exp)".
LOCKSTEP_API std::string describe(const Node& node);

/// How many attributes, from the first on, are sizes: they may change when only a batch size does.
size_t num_size_attributes(const Node& node);

}  // namespace lockstep::xla
