#include "lockstep/data/iterator.h"

#include <sstream>
#include <utility>

#include <c10/util/StringUtil.h>

#include "lockstep/base/error.h"
#include "lockstep/base/progress/progress.h"
#include "lockstep/data/element/mapped_buffers.h"
#include "lockstep/data/transforms/sound_skip.h"

namespace lockstep::data {

std::string PositionDetails::str() const {
  std::string text;
  if (seed) text += c10::str("seed ", *seed, " ");
  for (const CacheSeed& each : cache_seeds) {
    text += c10::str("cache ", each.cache, " ", each.branch, " ", each.seed, " ");
  }
  if (failed > 0) text += c10::str("failed ", failed, " repeated ", repeated, " ");
  if (worker) text += c10::str("worker ", *worker, " ");
  if (next_epoch) text += c10::str("next ", *next_epoch, " ");
  return text;
}

PositionDetails PositionDetails::parse(std::istream& in) {
  PositionDetails details;
  std::string word;
  while (in >> word && word != "of") {
    if (word == "seed") {
      in >> details.seed.emplace();
    } else if (word == "cache") {
      CacheSeed& cache = details.cache_seeds.emplace_back();
      in >> cache.cache >> cache.branch >> cache.seed;
    } else if (word == "failed") {
      in >> details.failed;
    } else if (word == "repeated") {
      in >> details.repeated;
    } else if (word == "worker") {
      in >> details.worker.emplace();
    } else if (word == "next") {
      in >> details.next_epoch.emplace();
    } else {
      in.setstate(std::ios::failbit);
    }
  }
  in.get();
  return details;
}

void PositionDetails::check_seeds(const Iteration& iteration) const {
  const uint64_t current = *iteration.seed;
  LOCKSTEP_CHECK_VALUE(!seed || *seed == current,
                       "[restore] the position must be of the same seed, on which the order or values of elements "
                       "depend: position of seed ",
                       *seed, ", seed ", current, "; call torch::manual_seed(", *seed,
                       ") before restore, or give the transforms seeds of their own");
  iteration.seed_use->expect(seed.has_value(), cache_seeds);
}

void PositionDetails::check_failed(int64_t now) const {
  LOCKSTEP_CHECK_VALUE(now == failed,
                       "[restore] the same elements must fail as before the position was taken, because others would "
                       "follow: failed then=",
                       failed, ", now=", now, "; start the epoch anew");
}

std::string Position::str() const {
  return c10::str("epoch ", epoch, " taken ", taken, " ", details.str(), "of ", pipeline);
}

Position Position::parse(const std::string& text) {
  std::istringstream in(text);
  std::string epoch_word, taken_word;
  Position position;
  in >> epoch_word >> position.epoch >> taken_word >> position.taken;
  position.details = PositionDetails::parse(in);
  LOCKSTEP_CHECK_VALUE(in && epoch_word == "epoch" && taken_word == "taken",
                       "[Position::parse] must be \"epoch NUMBER taken NUMBER ... of PIPELINE\": text=\"", text, "\"");
  std::getline(in, position.pipeline, '\0');
  return position;
}

namespace detail {

Iteration tracked(Iteration iteration) {
  if (!iteration.seed) iteration.seed = process_seed();
  iteration.seed_use = std::make_shared<SeedUse>();
  return iteration;
}

std::optional<uint64_t> used_seed(const Iteration& iteration) {
  const bool used = iteration.seed_use && iteration.seed_use->was_used();
  return used ? iteration.seed : std::nullopt;
}

ElementIterator::ElementIterator(NodePtr node, Iteration iteration)
    : node_(std::move(node)), iteration_(tracked(std::move(iteration))), iterator_(node_->iterator(iteration_)) {}

/// Throws where bytes of the last element could not be read: the loop has read zeros.
void ElementIterator::check_last() { check_mapped(mapped_); }

/// The iteration ends.
void ElementIterator::refuse_cache() {
  iterator_.reset();
  iteration_.seed_use->check();
}

bool ElementIterator::next(Element& element) {
  if (!mapped_.empty()) check_last();
  if (!iterator_) return false;
  ++taken_;  // before the call: an element that fails counts as taken
  try {
    const bool found = iterator_->next(element);
    if (found) add_mapped(element, mapped_);
    if (!found) --taken_;
    if (iteration_.seed_use->is_other_than_expected()) refuse_cache();
    return found;
  } catch (...) {
    ++failed_;
    taken_at_failure_ = taken_;
    throw;
  }
}

Position ElementIterator::position() const {
  const uint64_t next_epoch = node_->epochs()->next();
  return {.epoch = iteration_.epoch,
          .taken = taken_,
          .pipeline = describe(*node_),
          .details = {.seed = used_seed(iteration_),
                      .cache_seeds = iteration_.seed_use->of_caches(),
                      .failed = failed_,
                      .repeated = taken_at_failure_,
                      .next_epoch = next_epoch == iteration_.epoch + 1 ? std::nullopt : std::optional(next_epoch)}};
}

void ElementIterator::restore(const Position& position) {
  const std::string pipeline = describe(*node_);
  LOCKSTEP_CHECK_VALUE(position.pipeline == pipeline,
                       "[restore] the position must be of the same dataset: position of ", position.pipeline,
                       ", dataset ", pipeline);
  ElementIterator restored(node_,
                           {.epoch = position.epoch, .pin_memory = iteration_.pin_memory, .copier = iteration_.copier});
  position.details.check_seeds(restored.iteration_);
  restored.repeat(position.details);
  const detail::SkipScope scope(detail::Skipped::Sound);  // behind the last one that has failed
  const progress::Task task(c10::str("finding element ", position.taken, " of the dataset"));
  restored.taken_ += restored.iterator_->skip(position.taken - restored.taken_);
  restored.iteration_.seed_use->check();
  LOCKSTEP_CHECK_VALUE(restored.taken_ == position.taken,
                       "[restore] the position is beyond the end of the dataset: ", "elements=", restored.taken_,
                       ", taken=", position.taken, "; check whether its files have changed");
  *this = std::move(restored);
  node_->epochs()->set_next(position.details.next_epoch.value_or(position.epoch + 1));
}

void ElementIterator::repeat(const PositionDetails& details) {
  if (details.failed == 0) return;
  Element element;
  bool found = true;
  while (found && taken_ < details.repeated) {
    try {
      found = next(element);
    } catch (const std::exception&) {
    }
  }
  iteration_.seed_use->check();
  details.check_failed(failed_);
}

}  // namespace detail
}  // namespace lockstep::data
