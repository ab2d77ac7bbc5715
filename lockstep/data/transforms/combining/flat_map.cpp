#include <exception>

#include "lockstep/data/transforms/combining/expand.h"
#include "lockstep/data/transforms/sound_skip.h"

namespace lockstep::data::detail {
namespace {

class FlatMapIterator final : public NodeIterator {
 public:
  explicit FlatMapIterator(ExpandInput input) : input_(std::move(input)) {}

  bool next(Element& element) override {
    while (true) {
      if (current_ && current_->next(element)) return true;
      current_.reset();
      Iteration iteration;
      const NodePtr dataset = input_.next_dataset(iteration);
      if (!dataset) return false;
      current_ = dataset->iterator(iteration);
    }
  }

  int64_t skip(int64_t count) override {
    int64_t skipped = 0;
    while (skipped < count) {
      if (current_) skipped += current_->skip(count - skipped);
      if (skipped == count) break;
      current_.reset();
      try {
        if (!skip_or_open(count, skipped)) break;
      } catch (const std::exception&) {  // one error of `next`
        ++skipped;
      }
    }
    return skipped;
  }

 private:
  /// Takes the next dataset; false at the end. One that is skipped as a whole is not opened.
  bool skip_or_open(int64_t count, int64_t& skipped) {
    Iteration iteration;
    const NodePtr dataset = input_.next_dataset(iteration);
    if (!dataset) return false;
    const auto size = size_to_skip(*dataset);
    if (size && *size <= count - skipped) {
      skipped += *size;
    } else {
      current_ = dataset->iterator(iteration);
    }
    return true;
  }

  ExpandInput input_;
  std::unique_ptr<NodeIterator> current_;
};

class FlatMapNode final : public ExpandNode {
 public:
  FlatMapNode(NodePtr input, DatasetFunction fn) : ExpandNode(std::move(input), std::move(fn)) {}

  std::string name() const override { return "flat_map()"; }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return make_node<FlatMapNode>(std::move(inputs[0]), fn());
  }
  std::unique_ptr<NodeIterator> iterator(const Iteration& iteration) const override {
    return std::make_unique<FlatMapIterator>(expand_input(iteration));
  }
};

}  // namespace

NodePtr make_flat_map(NodePtr input, DatasetFunction fn) {
  return make_node<FlatMapNode>(std::move(input), std::move(fn));
}

}  // namespace lockstep::data::detail
