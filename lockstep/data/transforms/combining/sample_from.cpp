#include <algorithm>
#include <limits>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/data/transforms.h"
#include "lockstep/data/transforms/combining/separate_caches.h"
#include "lockstep/data/transforms/element_counter.h"

namespace lockstep::data::detail {
namespace {

/// One of the datasets.
struct SampledInput {
  SampledInput(const NodePtr& node, const Iteration& iteration)
      : iterator(node->iterator(iteration)), counter(node, iteration) {}

  std::unique_ptr<NodeIterator> iterator;
  ElementCounter counter;
  int64_t taken = 0;
};

class SampleIterator final : public NodeIterator {
 public:
  SampleIterator(std::vector<SampledInput> inputs, std::vector<double> weights, SampleOptions options, uint64_t seed)
      : inputs_(std::move(inputs)), weights_(std::move(weights)), options_(options), random_(seed) {}

  bool next(Element& element) override {
    return sample([&](size_t drawn) {
      SampledInput& input = inputs_[drawn];
      ++input.taken;  // before the call: an element that throws counts, too
      const bool found = input.counter.watched([&] { return input.iterator->next(element); });
      if (!found) --input.taken;
      return found;
    });
  }

  int64_t skip(int64_t count) override {
    if (count >= kManyElements) {
      if (const auto available = elements_left(count)) return skip_many(count, *available);
    }
    int64_t skipped = 0;
    while (skipped < count && sample([&](size_t drawn) { return skip_in(drawn, 1) == 1; })) ++skipped;
    return skipped;
  }

 private:
  /// From this number on it is worth while to count the elements of the datasets first.
  static constexpr int64_t kManyElements = 16;

  /// Returns how many elements each dataset still has, or `count` if there are more; nothing where that cannot be
  /// known.
  std::optional<std::vector<int64_t>> elements_left(int64_t count) {
    std::vector<int64_t> left(inputs_.size());
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (weights_[i] == 0) continue;
      const auto found = inputs_[i].counter.up_to(inputs_[i].taken + count);
      if (!found) return std::nullopt;
      left[i] = *found - inputs_[i].taken;
    }
    return left;
  }

  /// Draws first, then skips in each dataset once: a shuffle in it does not fill its buffer for every element.
  int64_t skip_many(int64_t count, const std::vector<int64_t>& available) {
    std::vector<int64_t> drawn_of(inputs_.size());
    const auto take = [&](size_t drawn) { return drawn_of[drawn] < available[drawn] && ++drawn_of[drawn] > 0; };
    int64_t skipped = 0;
    while (skipped < count && sample(take)) ++skipped;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const int64_t found = drawn_of[i] > 0 ? skip_in(i, drawn_of[i]) : 0;
      LOCKSTEP_CHECK_DATA(found == drawn_of[i], "[sample_from] dataset ", i,
                          " has ended before the elements that were counted: counted=", drawn_of[i], ", found=", found,
                          "; do not change files while they are read");
    }
    return skipped;
  }

  int64_t skip_in(size_t index, int64_t count) {
    SampledInput& input = inputs_[index];
    const int64_t skipped = input.counter.watched([&] { return input.iterator->skip(count); });
    input.taken += skipped;
    return skipped;
  }

  /// Draws datasets until `take` gets an element from one of them.
  template <class Take>
  bool sample(Take&& take) {
    while (true) {
      const double total = std::accumulate(weights_.begin(), weights_.end(), 0.0);
      if (!(total > 0)) return false;
      const size_t drawn = draw(random_.unit() * total);
      if (take(drawn)) return true;
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

  std::vector<SampledInput> inputs_;
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
    std::vector<SampledInput> sampled;
    for (size_t i = 0; i < inputs().size(); ++i) sampled.emplace_back(inputs()[i], iteration.of_input(i, depth()));
    return std::make_unique<SampleIterator>(std::move(sampled), weights_, options_,
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
  separate_caches(inputs);
  return make_node<SampleNode>(std::move(inputs), std::move(weights), options);
}

}  // namespace lockstep::data::detail
