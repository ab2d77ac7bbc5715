#include <exception>
#include <string>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/data/transforms.h"
#include "lockstep/data/transforms/element_errors.h"

namespace lockstep::data::detail {
namespace {

/// Errors of one iteration that are logged; the others are only counted.
constexpr int64_t kLoggedErrors = 10;
/// An input that only fails, such as a missing file that is read again and again, must not block its reader for ever.
constexpr int64_t kErrorsInARow = 100'000;

class IgnoreErrorsIterator final : public NodeIterator {
 public:
  IgnoreErrorsIterator(const NodePtr& input, const IgnoreErrorsOptions& options, const Iteration& iteration)
      : input_(input->iterator(iteration)), options_(options), pipeline_(describe(*input)) {
    if (!iteration.is_silent) return;
    options_.count = nullptr;
    options_.log = false;
  }
  ~IgnoreErrorsIterator() override { report(); }

  bool next(Element& element) override {
    while (true) {
      try {
        const bool found = input_->next(element);
        in_a_row_ = 0;
        if (!found) report();
        return found;
      } catch (const std::exception& error) {
        if (!is_of_an_element(error) || (options_.limit && ignored_ >= *options_.limit)) throw;
        ignore(error);
      }
    }
  }

 private:
  void ignore(const std::exception& error) {
    ++ignored_;
    if (options_.count) options_.count->fetch_add(1, std::memory_order_relaxed);
    if (options_.log && ignored_ <= kLoggedErrors) {
      LOCKSTEP_LOG(Warn) << "[ignore_errors] an element is left out: " << text_of_error(error);
    }
    if (++in_a_row_ < kErrorsInARow) return;
    in_a_row_ = 0;
    LOCKSTEP_THROW(DataError, "[ignore_errors] there must be an element between so many errors: errors=", kErrorsInARow,
                   ", dataset=", pipeline_, "; the last error: ", text_of_error(error));
  }

  /// Once, at the end or where the iteration is left.
  void report() {
    const int64_t ignored = std::exchange(reported_, ignored_);
    if (!options_.log || ignored == ignored_) return;
    LOCKSTEP_LOG(Warn) << "[ignore_errors] " << ignored_ << (ignored_ == 1 ? " element was" : " elements were")
                       << " left out: dataset=" << pipeline_;
  }

  std::unique_ptr<NodeIterator> input_;
  IgnoreErrorsOptions options_;
  std::string pipeline_;
  int64_t ignored_ = 0;
  int64_t reported_ = 0;
  int64_t in_a_row_ = 0;
};

class IgnoreErrorsNode final : public UnaryNode {
 public:
  IgnoreErrorsNode(NodePtr input, IgnoreErrorsOptions options)
      : UnaryNode(std::move(input)), options_(std::move(options)) {}

  std::string name() const override {
    return options_.limit ? c10::str("ignore_errors(", *options_.limit, ")") : "ignore_errors()";
  }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return make_node<IgnoreErrorsNode>(std::move(inputs[0]), options_);
  }
  std::unique_ptr<NodeIterator> iterator(const Iteration& iteration) const override {
    return std::make_unique<IgnoreErrorsIterator>(input(), options_, iteration);
  }
  Cardinality cardinality() const override {
    const Cardinality all = input()->cardinality();
    return all.is_infinite() || all == Cardinality::exactly(0) ? all : Cardinality::unknown();
  }
  std::optional<int64_t> batch_size() const override { return input()->batch_size(); }
  std::optional<int64_t> uniform_batch_size() const override { return input()->uniform_batch_size(); }

 private:
  IgnoreErrorsOptions options_;
};

}  // namespace

NodePtr make_ignore_errors(NodePtr input, IgnoreErrorsOptions options) {
  LOCKSTEP_CHECK_VALUE(!options.limit || *options.limit >= 0,
                       "[ignore_errors] the limit must not be negative: limit=", *options.limit,
                       "; leave it out to ignore any number of errors");
  return make_node<IgnoreErrorsNode>(std::move(input), std::move(options));
}

}  // namespace lockstep::data::detail
