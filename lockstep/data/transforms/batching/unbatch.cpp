#include <algorithm>

#include "lockstep/data/transforms.h"
#include "lockstep/data/transforms/batching/row_stream.h"
#include "lockstep/data/transforms/batching/rows.h"

namespace lockstep::data::detail {
namespace {

class UnbatchIterator final : public NodeIterator {
 public:
  /// Rows that several threads copy later must not be in memory that a user's function writes again.
  UnbatchIterator(NodePtr input, const Iteration& iteration)
      : stream_(std::move(input), iteration, "unbatch", iteration.copier ? RowMemory::Own : RowMemory::Any) {}

  bool next(Element& element) override {
    if (!stream_.find()) return false;
    if (stream_.num_read() != num_seen_) {
      rows_ = BatchRows(stream_.batch(), "unbatch");
      num_seen_ = stream_.num_read();
    }
    rows_.row(stream_.start(), element);
    stream_.take(1);
    return true;
  }

  int64_t skip(int64_t count) override { return stream_.skip(count); }

 private:
  RowStream stream_;
  BatchRows rows_;
  /// The number of the batch in `rows_`.
  int64_t num_seen_ = 0;
};

class UnbatchNode final : public UnaryNode {
 public:
  explicit UnbatchNode(NodePtr input) : UnaryNode(std::move(input)) {}

  std::string name() const override { return "unbatch()"; }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return make_node<UnbatchNode>(std::move(inputs[0]));
  }
  std::unique_ptr<NodeIterator> iterator(const Iteration& iteration) const override {
    return std::make_unique<UnbatchIterator>(input(), iteration);
  }
  ElementSpec spec() const override {
    ElementSpec spec = input()->spec();
    // The spec of list items is unknown, and so is the spec of an element with such a part.
    const bool has_list =
        spec.leaves && std::any_of(spec.leaves->begin(), spec.leaves->end(),
                                   [](const LeafSpec& leaf) { return leaf.kind != LeafSpec::Kind::Tensor; });
    if (has_list) return {};
    return spec.map_leaves([](LeafSpec leaf) {
      leaf.shape = leaf.shape.without_leading();
      return leaf;
    });
  }
  Cardinality cardinality() const override {
    const Cardinality batches = input()->cardinality();
    return batches.is_known() ? Cardinality::unknown() : batches;
  }
};

}  // namespace

NodePtr make_unbatch(NodePtr input) {
  check_has_rows(input->spec(), "unbatch");
  return make_node<UnbatchNode>(std::move(input));
}

}  // namespace lockstep::data::detail
