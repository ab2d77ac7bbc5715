#include "lockstep/xla/graph/pad_trace.h"

#include <algorithm>
#include <limits>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/xla/graph/ops/make_node.h"

namespace lockstep::xla {
namespace {

/// Why a trace cannot be padded.
struct CannotPad {
  std::string why;
};

void require(bool condition, const Node& node, const char* why) {
  if (!condition) throw CannotPad{c10::str(why, ": ", describe(node))};
}

/// The value that does not change what it is combined with.
Value neutral(Combiner combiner, Dtype dtype) {
  const auto lowest_integer = [&]() -> int64_t {
    if (dtype == at::kByte || dtype == at::kBool) return 0;
    return std::numeric_limits<int64_t>::min() >> (64 - 8 * c10::elementSize(dtype));
  };
  const auto highest_integer = [&]() -> int64_t {
    if (dtype == at::kBool) return 1;
    return dtype == at::kByte ? 255 : ~lowest_integer();
  };
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  switch (combiner) {
    case Combiner::Multiply:
      return integer(1, dtype);
    case Combiner::And:
      return integer(dtype == at::kBool ? 1 : -1, dtype);
    case Combiner::Maximum:
      return is_float(dtype) ? number(-kInfinity, dtype) : integer(lowest_integer(), dtype);
    case Combiner::Minimum:
      return is_float(dtype) ? number(kInfinity, dtype) : integer(highest_integer(), dtype);
    default:
      return integer(0, dtype);
  }
}

class Padder {
 public:
  Padder(const Trace& trace, const ReferenceTrace& reference, const std::vector<PaddedSize>& sizes)
      : trace_(trace), reference_(reference), sizes_(sizes), mapped_(trace.nodes.size()) {}

  PaddedTrace run() {
    for (size_t i = 0; i < trace_.nodes.size(); ++i) {
      const Node& node = *trace_.nodes[i];
      LOCKSTEP_ASSERT(node.index == i, "the trace was collected again");
      mapped_[i] = padded(node);
      mapped_[i]->origin = node.origin;
    }
    std::vector<Trace::Result> results;
    for (size_t i = 0; i < trace_.results.size(); ++i) {
      const Trace::Result& result = trace_.results[i];
      require(result.value->op != Op::Argument, *result.value, "a result is an argument");
      results.push_back({of(result.value), result.layout, donated_to(i)});
    }
    PaddedTrace made{collect(std::move(results)), {}};
    for (const Node* argument : made.trace.arguments) made.sources.push_back(sources_.at(argument));
    return made;
  }

 private:
  const Value& of(const Value& operand) const { return mapped_[operand->index]; }

  bool is_changing(const Node& node, size_t dim) const { return reference_.is_changing(node, dim); }

  bool changes(const Node& node) const { return reference_.changing[node.index] != 0; }

  bool any_changes(const Node& node) const {
    for (const Value& operand : node.operands) {
      if (changes(*operand)) return true;
    }
    return false;
  }

  const Shape& reference_shape(const Node& node) const { return reference_.shapes[node.index]; }

  /// The argument that the original's result was donated, or null.
  const Node* donated_to(size_t result) const {
    for (size_t i = 0; i < trace_.arguments.size(); ++i) {
      if (trace_.donated_to[i] == static_cast<int>(result)) return mapped_[trace_.arguments[i]->index].get();
    }
    return nullptr;
  }

  /// A changing size is that of an argument, or a multiple of it: a reshape has joined the rows with another dimension.
  int64_t padded_size(const Node& node, size_t dim) const {
    const int64_t then = reference_shape(node)[dim], now = node.shape[dim];
    for (const PaddedSize& size : sizes_) {
      if (size.reference == then && size.size == now) return size.padded;
    }
    for (const PaddedSize& size : sizes_) {
      if (size.size > 0 && now % size.size == 0 && now * size.reference == then * size.size)
        return now / size.size * size.padded;
    }
    throw CannotPad{c10::str("a size depends on the number of rows in an unknown way: ", describe(node))};
  }

  Shape padded_shape(const Node& node) const {
    Shape shape = node.shape;
    for (size_t dim = 0; dim < shape.size(); ++dim) {
      if (is_changing(node, dim)) shape[dim] = padded_size(node, dim);
    }
    return shape;
  }

  /// The same operation on padded operands.
  Value clone(const Node& node, c10::ArrayRef<Value> operands) const {
    Value copy = make_node(node.op, node.dtype, padded_shape(node), operands);
    copy->kind = node.kind;
    copy->attributes = node.attributes;
    copy->region = node.region;
    copy->ordinal = node.ordinal;
    copy->needs_others = node.needs_others;
    return copy;
  }

  Value clone(const Node& node) const {
    std::vector<Value> operands;
    for (const Value& operand : node.operands) operands.push_back(of(operand));
    return clone(node, operands);
  }

  /// The number of rows of the original along a dimension: an argument of the program.
  const Value& num_rows(const Node& node, size_t dim) {
    Value& rows = rows_[{reference_shape(node)[dim], node.shape[dim]}];
    if (!rows) rows = integer(node.shape[dim], at::kLong, /*always_argument=*/true);
    return rows;
  }

  /// Replaces the rows that were added along these dimensions, as far as they change.
  Value masked(const Value& original, Ints dims, const Value& replacement) {
    Value value = of(original);
    for (const int64_t dim : dims) {
      if (!is_changing(*original, static_cast<size_t>(dim))) continue;
      const Value position = iota(at::kLong, value->shape, dim);
      const Value is_row = compare(Comparison::LT, position, num_rows(*original, static_cast<size_t>(dim)));
      value = select(is_row, value, replacement);
    }
    return value;
  }

  Value padded(const Node& node) {
    switch (node.op) {
      case Op::Argument:
        return argument_of(node);
      case Op::Number:
        return number_of(node);
      case Op::Unary:
      case Op::Binary:
      case Op::Compare:
      case Op::Select:
      case Op::Convert:
        return pointwise(node);
      case Op::Broadcast:
        return broadcast_of(node);
      case Op::Reshape:
        return reshape_of(node);
      case Op::Slice:
        return slice_of(node);
      case Op::DynamicSlice:
      case Op::DynamicUpdateSlice:
        return dynamic_part_of(node);
      case Op::Pad:
      case Op::UpdateSlice:
        return part_of(node);
      case Op::Reduce:
        return clone(node, {masked(node.operands[0], node.attributes,
                                   neutral(node.kind_as<Combiner>(), node.operands[0]->dtype))});
      case Op::Dot:
        return dot_of(node);
      case Op::Convolution:
        return convolution_of(node);
      case Op::ReduceWindow:
      case Op::WindowMaxIndex:
      case Op::SelectAndScatter:
        return window_of(node);
      case Op::Scatter:
        return scatter_of(node);
      case Op::Concatenate:
      case Op::Reverse:
      case Op::Sort:
        return along_fixed_dims(node);
      case Op::Iota:
      case Op::Transpose:
      case Op::Take:
        return clone(node);
      case Op::Scan:
      case Op::ScanOutput:
        require(!changes(node) && !any_changes(node), node, "a loop over rows");
        return clone(node);
      case Op::RandomBits:
        require(!changes(node), node, "random numbers of rows depend on the number of rows");
        return clone(node);
      case Op::AllReduce:
      case Op::AllGather:
      case Op::Annotation:
      case Op::Parameter:
        break;
    }
    require(!changes(node) && !changes(*node.operands[0]), node, "replicas and logical devices exchange rows");
    return clone(node);
  }

  Value argument_of(const Node& node) {
    Value copy = make_node(Op::Argument, node.dtype, padded_shape(node), {});
    sources_[copy.get()] = trace_.nodes[node.index];
    return copy;
  }

  Value number_of(const Node& node) {
    Value copy = make_node(Op::Number, node.dtype, node.shape, {});
    copy->number = node.number;
    copy->integer = node.integer;
    copy->ordinal = node.ordinal;
    copy->always_argument = node.always_argument || reference_.number_changes[next_number_] != 0;
    ++next_number_;
    return copy;
  }

  Value pointwise(const Node& node) {
    Value made = clone(node);
    for (const Value& operand : made->operands) {
      require(operand->shape == made->shape, node, "operands have different numbers of rows");
    }
    return made;
  }

  Value broadcast_of(const Node& node) {
    Value made = clone(node);
    const Node& original = *node.operands[0];
    for (size_t i = 0; i < node.attributes.size(); ++i) {
      const bool is_one = original.shape[i] == 1 && !is_changing(original, i);
      require(is_one || made->operands[0]->shape[i] == made->shape[node.attributes[i]], node, "rows are repeated");
    }
    return made;
  }

  /// Rows stay first if the changing dimension is the outermost of those that the reshape joins or divides.
  Value reshape_of(const Node& node) {
    Value made = clone(node);
    if (!changes(node) && !changes(*node.operands[0])) return made;
    const Node& before = *node.operands[0];
    size_t i = 0, j = 0;
    while (i < before.shape.size() || j < node.shape.size()) {
      const size_t first_i = i, first_j = j;
      int64_t in = i < before.shape.size() ? reference_shape(before)[i++] : 1;
      int64_t out = j < node.shape.size() ? reference_shape(node)[j++] : 1;
      while (in != out) {
        if (in < out && i < before.shape.size()) {
          in *= reference_shape(before)[i++];
        } else {
          require(in > out && j < node.shape.size(), node, "a reshape divides rows");
          out *= reference_shape(node)[j++];
        }
      }
      const int in_group = outermost_changing(before, first_i, i, node),
                out_group = outermost_changing(node, first_j, j, node);
      require(in_group == out_group, node, "a reshape divides rows");
    }
    require(made->numel() == made->operands[0]->numel(), node, "a reshape divides rows");
    return made;
  }

  /// 1 if one of these dimensions changes, and those before it have the size 1; 0 if none changes.
  int outermost_changing(const Node& node, size_t begin, size_t end, const Node& reshape) const {
    int found = 0;
    bool only_ones = true;
    for (size_t dim = begin; dim < end; ++dim) {
      if (is_changing(node, dim)) {
        require(only_ones && found == 0 && reference_shape(node)[dim] > 1, reshape, "a reshape divides rows");
        found = 1;
      }
      only_ones = only_ones && node.shape[dim] == 1 && !is_changing(node, dim);
    }
    return found;
  }

  Value slice_of(const Node& node) {
    Value made = clone(node);
    const Node& whole = *node.operands[0];
    const size_t rank = node.shape.size();
    for (size_t dim = 0; dim < rank; ++dim) {
      const int64_t begin = node.attributes[dim], end = node.attributes[rank + dim];
      if (is_changing(node, dim)) {
        require(begin == 0 && (end == whole.shape[dim] || !is_changing(whole, dim)), node, "a slice of rows");
        require(made->shape[dim] <= made->operands[0]->shape[dim], node, "a slice of rows");
        made->attributes[rank + dim] = made->shape[dim];
      } else if (is_changing(whole, dim)) {
        require(is_as_before(node, dim) && is_as_before(node, rank + dim), node, "a slice of the last rows");
      }
    }
    return made;
  }

  /// Parts at positions that change: rows that change are taken or written as a whole. Other parts lie in the original,
  /// whose rows come first.
  Value dynamic_part_of(const Node& node) {
    const bool is_read = node.op == Op::DynamicSlice;
    const Node& whole = *node.operands[0];
    const Node& part = is_read ? node : *node.operands[1];
    for (size_t dim = 0; dim < part.shape.size(); ++dim) {
      const bool is_all = is_changing(whole, dim) && part.shape[dim] == whole.shape[dim];
      require(!is_changing(part, dim) || is_all, node, "a slice of rows");
    }
    return clone(node);
  }

  bool is_as_before(const Node& node, size_t attribute) const {
    return reference_.attributes[node.index][attribute] == node.attributes[attribute];
  }

  /// Pad and UpdateSlice: nothing is added or written along a changing dimension but at a fixed position.
  Value part_of(const Node& node) {
    const Node& part = *node.operands.back();
    const size_t rank = node.shape.size();
    for (size_t dim = 0; dim < rank; ++dim) {
      if (!is_changing(node, dim) && !is_changing(part, dim)) continue;
      if (node.op == Op::Pad || is_changing(part, dim)) {
        require(is_changing(node, dim) && is_changing(part, dim) && node.attributes[dim] == 0 &&
                    part.shape[dim] == node.shape[dim],
                node, "rows are added or overwritten");
      } else {
        require(is_as_before(node, dim), node, "the last rows are overwritten");
      }
    }
    return clone(node);
  }

  Value dot_of(const Node& node) {
    const Ints all = node.attributes;
    const auto batch = static_cast<size_t>(all[0]);
    const size_t contracted = (all.size() - 1 - 2 * batch) / 2;
    const Value zero = neutral(Combiner::Add, node.dtype);
    return clone(node, {masked(node.operands[0], all.slice(1 + 2 * batch, contracted), zero),
                        masked(node.operands[1], all.slice(1 + 2 * batch + contracted, contracted), zero)});
  }

  /// Only the dimension of the batch may change. The gradient of the weights sums over it.
  Value convolution_of(const Node& node) {
    const Node& input = *node.operands[0];
    const Node& kernel = *node.operands[1];
    const bool of_weights = node.kind_as<ConvolutionUse>() == ConvolutionUse::WeightGradient;
    const uint32_t of_input = reference_.changing[input.index], of_kernel = reference_.changing[kernel.index];
    if (of_input == 0 && of_kernel == 0 && !changes(node)) return clone(node);
    const int64_t feature_groups = node.attributes[node.attributes.size() - 2];
    const int64_t batch_groups = node.attributes.back();
    for (size_t i = 0; i < node.attributes.size(); ++i) {
      require(is_as_before(node, i), node, "a convolution along rows");
    }
    if (!of_weights) {
      require(of_input == 1 && of_kernel == 0 && reference_.changing[node.index] == 1 && batch_groups == 1, node,
              "a convolution along rows");
      return clone(node);
    }
    require(of_input == 1 && of_kernel == 1 && !changes(node) && feature_groups == 1, node, "a convolution along rows");
    const Value zero = neutral(Combiner::Add, node.dtype);
    return clone(node, {masked(node.operands[0], {0}, zero), masked(node.operands[1], {0}, zero)});
  }

  /// Windows have one row.
  Value window_of(const Node& node) {
    const size_t rank = node.shape.size();
    const auto entry = [&](size_t part, size_t dim) { return node.attributes[part * rank + dim]; };
    for (size_t dim = 0; dim < rank; ++dim) {
      bool any = is_changing(node, dim);
      for (const Value& operand : node.operands) any = any || is_changing(*operand, dim);
      const bool is_one = entry(0, dim) == 1 && entry(1, dim) == 1 && entry(2, dim) == 0 && entry(3, dim) == 0;
      require(!any || is_one, node, "a window along rows");
    }
    return clone(node);
  }

  /// Updates of rows that were added get an index out of bounds, which is skipped.
  Value scatter_of(const Node& node) {
    const Value& indices = node.operands[1];
    Shape dims;
    for (size_t dim = 0; dim < indices->shape.size(); ++dim) dims.push_back(static_cast<int64_t>(dim));
    const Value base = of(node.operands[0]);
    return clone(node, {base, masked(indices, dims, integer(base->shape[0], indices->dtype)), of(node.operands[2])});
  }

  /// Concatenate, Reverse and Sort: their attributes are dimensions, of which none may change; a sort has its output
  /// after it.
  Value along_fixed_dims(const Node& node) {
    const size_t count = node.op == Op::Reverse ? node.attributes.size() : 1;
    for (size_t i = 0; i < count; ++i) {
      const auto dim = static_cast<size_t>(node.attributes[i]);
      bool any = is_changing(node, dim);
      for (const Value& operand : node.operands) any = any || is_changing(*operand, dim);
      require(!any, node, "rows are joined, sorted or reversed");
    }
    return clone(node);
  }

  const Trace& trace_;
  const ReferenceTrace& reference_;
  const std::vector<PaddedSize>& sizes_;
  std::vector<Value> mapped_;
  std::map<const Node*, Node*> sources_;
  std::map<std::pair<int64_t, int64_t>, Value> rows_;
  size_t next_number_ = 0;
};

}  // namespace

std::optional<PaddedTrace> pad_trace(const Trace& trace, const ReferenceTrace& reference,
                                     const std::vector<PaddedSize>& sizes, std::string& why) {
  try {
    return Padder(trace, reference, sizes).run();
  } catch (const CannotPad& cannot) {
    why = cannot.why;
    return std::nullopt;
  }
}

}  // namespace lockstep::xla
