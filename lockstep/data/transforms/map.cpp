#include "lockstep/data/transforms/map.h"

#include <algorithm>
#include <mutex>

#include "lockstep/base/error.h"
#include "lockstep/data/element/private_memory.h"
#include "lockstep/data/transforms.h"

namespace lockstep::data::detail {
namespace {

class MapIterator final : public NodeIterator {
 public:
  MapIterator(std::unique_ptr<NodeIterator> input, MapFunction fn) : input_(std::move(input)), fn_(std::move(fn)) {}

  bool next(Element& element) override {
    const int64_t ordinal = ordinal_++;  // before the call: an element that throws has its number, too
    if (!input_->next(in_)) return false;
    fn_(ordinal, in_, element);
    return true;
  }

  int64_t skip(int64_t count) override {
    const int64_t skipped = input_->skip(count);
    ordinal_ += skipped;
    return skipped;
  }

 private:
  std::unique_ptr<NodeIterator> input_;
  MapFunction fn_;
  int64_t ordinal_ = 0;
  Element in_;
};

/// Whether everything is known.
bool is_complete(const ElementSpec& spec) {
  return spec.leaves && std::all_of(spec.leaves->begin(), spec.leaves->end(), [](const LeafSpec& leaf) {
           return leaf.kind != LeafSpec::Kind::Tensor || (leaf.dtype && leaf.shape.has_rank());
         });
}

bool has_unknown_rows(const ElementSpec& spec) {
  return !spec.leaves || std::any_of(spec.leaves->begin(), spec.leaves->end(), [](const LeafSpec& leaf) {
    return !leaf.shape.has_rank() || (leaf.shape.rank() > 0 && !leaf.shape.leading());
  });
}

/// Returns the graph without shuffles: its specs are the same, and no buffer is filled to look at an element.
NodePtr without_shuffles(const NodePtr& node) {
  if (node->inputs().empty()) return node;
  if (node->role() == Role::Shuffle) return without_shuffles(node->input());
  std::vector<NodePtr> inputs;
  for (const NodePtr& input : node->inputs()) inputs.push_back(without_shuffles(input));
  return node->with_changed_inputs(std::move(inputs));
}

class MapNode final : public UnaryNode {
 public:
  MapNode(NodePtr input, ElementFunction fn, ElementSpec result, MapOptions options)
      : UnaryNode(std::move(input)), fn_(std::move(fn)), result_(std::move(result)), options_(std::move(options)) {}

  std::string name() const override { return "map()"; }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return make_node<MapNode>(std::move(inputs[0]), fn_, result_, options_);
  }

  std::unique_ptr<NodeIterator> iterator(const Iteration& iteration) const override {
    MapFunction fn(fn_, FunctionRandom(depth(), iteration));
    auto input_iterator = input()->iterator(iteration);
    if (options_.num_threads == 1) return std::make_unique<MapIterator>(std::move(input_iterator), std::move(fn));
    return make_parallel_map_iterator(std::move(input_iterator), std::move(fn), options_);
  }

  ElementSpec spec() const override {
    if (options_.spec) return *options_.spec;
    if (is_complete(result_) || !input()->is_replayable()) return result_;
    std::call_once(probed_, [this] {
      try {
        seen_ = probe();
      } catch (const std::exception&) {
        seen_ = result_;  // iteration throws again
      }
    });
    return seen_;
  }

 private:
  /// Calls the function on two elements and returns what the specs of the results have in common. Where the number of
  /// rows of the input is unknown, that of the result is unknown, too.
  ElementSpec probe() const {
    MapFunction fn(fn_, FunctionRandom());
    const auto elements = without_shuffles(input())->iterator({.is_silent = true});
    Element in;
    Element out;
    std::optional<ElementSpec> seen;
    for (int64_t i = 0; i < 2 && elements->next(in); ++i) {
      fn(i, in, out);
      seen = seen ? seen->meet(ElementSpec::of(out)) : ElementSpec::of(out);
    }
    if (!seen) return result_;
    const bool unknown_rows = has_unknown_rows(input()->spec());
    return seen->map_leaves([&](LeafSpec leaf) {
      if (unknown_rows && leaf.shape.has_rank() && leaf.shape.rank() > 0) {
        leaf.shape = leaf.shape.without_leading().with_leading(std::nullopt);
      }
      return leaf;
    });
  }

  ElementFunction fn_;
  ElementSpec result_;
  MapOptions options_;
  mutable std::once_flag probed_;
  mutable ElementSpec seen_;
};

}  // namespace

void MapFunction::operator()(int64_t ordinal, Element& in, Element& out) {
  const MappedReads reads(in);
  random_(ordinal, [&] { fn_(in, out); });
  reads.check("map");
}

NodePtr make_map(NodePtr input, ElementFunction fn, ElementSpec result, MapOptions options) {
  LOCKSTEP_CHECK_VALUE(options.num_threads >= 1,
                       "[map] there must be at least one thread: num_threads=", options.num_threads);
  LOCKSTEP_CHECK_VALUE(options.buffer_size >= 0,
                       "[map] the buffer must not be negative: buffer_size=", options.buffer_size);
  return make_node<MapNode>(std::move(input), std::move(fn), std::move(result), std::move(options));
}

}  // namespace lockstep::data::detail
