#include <algorithm>
#include <limits>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/data/transforms.h"

namespace lockstep::data::detail {
namespace {

class SampleIterator final : public NodeIterator {
 public:
  SampleIterator(std::vector<std::unique_ptr<NodeIterator>> inputs, std::vector<double> weights, SampleOptions options,
                 uint64_t seed)
      : inputs_(std::move(inputs)), weights_(std::move(weights)), options_(options), random_(seed) {}

  bool next(Element& element) override {
    return sample([&](NodeIterator& input) { return input.next(element); });
  }

  int64_t skip(int64_t count) override {
    int64_t skipped = 0;
    while (skipped < count && sample([](NodeIterator& input) { return input.skip(1) == 1; })) ++skipped;
    return skipped;
  }

 private:
  /// Draws datasets until `take` gets an element from one of them.
  template <class Take>
  bool sample(Take&& take) {
    while (true) {
      const double total = std::accumulate(weights_.begin(), weights_.end(), 0.0);
      if (!(total > 0)) return false;
      const size_t drawn = draw(random_.unit() * total);
      if (take(*inputs_[drawn])) return true;
      if (options_.stop_on_empty_dataset) std::fill(weights_.begin(), weights_.end(), 0.0);
      weights_[drawn] = 0;
    }
  }

  size_t draw(double at) const {
    size_t last = 0;
    for (size_t i = 0; i < weights_.size(); ++i) {
      if (weights_[i] == 0) continue;
      last = i;
      if (at < weights_[i]) return i;
      at -= weights_[i];
    }
    return last;  // only by rounding
  }

  std::vector<std::unique_ptr<NodeIterator>> inputs_;
  /// Zero for datasets that have ended.
  std::vector<double> weights_;
  SampleOptions options_;
  SmallRandom random_;
};

class SampleNode final : public Node {
 public:
  SampleNode(std::vector<NodePtr> inputs, std::vector<double> weights, SampleOptions options)
      : Node(std::move(inputs)), weights_(std::move(weights)), options_(options) {}

  std::string name() const override {
    return c10::str("sample_from(", c10::ArrayRef<double>(weights_),
                    options_.seed ? c10::str(", seed=", *options_.seed) : "", ")");
  }
  Role role() const override { return Role::Combine; }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return make_node<SampleNode>(std::move(inputs), weights_, options_);
  }
  std::unique_ptr<NodeIterator> iterator(const Iteration& iteration) const override {
    std::vector<std::unique_ptr<NodeIterator>> iterators;
    for (const NodePtr& input : inputs()) iterators.push_back(input->iterator(iteration));
    return std::make_unique<SampleIterator>(std::move(iterators), weights_, options_,
                                            random_seed(options_.seed, depth(), iteration));
  }
  ElementSpec spec() const override {
    ElementSpec spec = input()->spec();
    for (const NodePtr& each : inputs()) spec = spec.meet(each->spec());
    return spec;
  }
  Cardinality cardinality() const override {
    Cardinality all = Cardinality::exactly(0);
    bool any_ends = false;
    for (size_t i = 0; i < inputs().size(); ++i) {
      if (weights_[i] == 0) continue;
      all = Cardinality::sum(all, inputs()[i]->cardinality());
      any_ends = any_ends || !inputs()[i]->cardinality().is_infinite();
    }
    return options_.stop_on_empty_dataset && any_ends ? Cardinality::unknown() : all;
  }

 private:
  std::vector<double> weights_;
  SampleOptions options_;
};

}  // namespace

NodePtr make_sample_from(std::vector<NodePtr> inputs, std::vector<double> weights, SampleOptions options) {
  LOCKSTEP_CHECK_VALUE(!inputs.empty(), "[sample_from] there must be at least one dataset");
  if (weights.empty()) weights.assign(inputs.size(), 1.0);
  LOCKSTEP_CHECK_VALUE(weights.size() == inputs.size(),
                       "[sample_from] there must be one weight for each dataset: weights=", weights.size(),
                       ", datasets=", inputs.size());
  for (const double weight : weights) {
    LOCKSTEP_CHECK_VALUE(weight >= 0 && weight < std::numeric_limits<double>::infinity(),
                         "[sample_from] weights must be finite and not negative: weight=", weight);
  }
  const bool any = std::any_of(weights.begin(), weights.end(), [](double weight) { return weight > 0; });
  LOCKSTEP_CHECK_VALUE(any,
                       "[sample_from] at least one weight must be above 0: weights=", c10::ArrayRef<double>(weights));
  return make_node<SampleNode>(std::move(inputs), std::move(weights), options);
}

}  // namespace lockstep::data::detail
