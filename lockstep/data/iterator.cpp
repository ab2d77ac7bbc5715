#include "lockstep/data/iterator.h"

#include <sstream>

#include "lockstep/base/error.h"

namespace lockstep::data {

std::string Position::str() const {
  std::ostringstream text;
  text << "epoch " << epoch << " taken " << taken << " of " << pipeline;
  return text.str();
}

Position Position::parse(const std::string& text) {
  std::istringstream in(text);
  std::string epoch_word, taken_word, of_word;
  Position position;
  in >> epoch_word >> position.epoch >> taken_word >> position.taken >> of_word;
  LOCKSTEP_CHECK_VALUE(in && epoch_word == "epoch" && taken_word == "taken" && of_word == "of",
                       "[Position::parse] must be \"epoch NUMBER taken NUMBER of PIPELINE\": text=\"", text, "\"");
  in.get();
  std::getline(in, position.pipeline, '\0');
  return position;
}

namespace detail {

ElementIterator::ElementIterator(NodePtr node, Iteration iteration)
    : node_(std::move(node)), iteration_(iteration), iterator_(node_->iterator(iteration)) {}

bool ElementIterator::next(Element& element) {
  ++taken_;  // before the call: an element that fails counts as taken
  const bool found = iterator_->next(element);
  if (!found) --taken_;
  return found;
}

Position ElementIterator::position() const { return {iteration_.epoch, taken_, describe(*node_)}; }

void ElementIterator::restore(const Position& position) {
  const std::string pipeline = describe(*node_);
  LOCKSTEP_CHECK_VALUE(position.pipeline == pipeline,
                       "[restore] the position must be of the same dataset: position of ", position.pipeline,
                       ", dataset ", pipeline);
  iteration_.epoch = position.epoch;
  iterator_ = node_->iterator(iteration_);
  taken_ = iterator_->skip(position.taken);
  LOCKSTEP_CHECK_VALUE(taken_ == position.taken,
                       "[restore] the position is beyond the end of the dataset: ", "elements=", taken_,
                       ", taken=", position.taken, "; check whether its files have changed");
}

}  // namespace detail
}  // namespace lockstep::data
