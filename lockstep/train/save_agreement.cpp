#include "lockstep/train/save_agreement.h"

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/comm/job/job.h"

namespace lockstep::detail {
namespace {

std::string outcome_text(const SaveOutcome& outcome) { return static_cast<char>(outcome.kind) + outcome.text; }

SaveOutcome parse_outcome(const std::string& text) {
  LOCKSTEP_ASSERT(!text.empty());
  return {static_cast<SaveOutcome::Kind>(text[0]), text.substr(1)};
}

}  // namespace

void SaveOutcome::check() const {
  LOCKSTEP_CHECK_DATA(kind != Kind::Data, text);
  LOCKSTEP_CHECK_VALUE(kind != Kind::Value, text);
  LOCKSTEP_CHECK_COLLECTIVE(kind != Kind::Lost, text);
}

SaveOutcome SaveOutcome::of(const std::function<void()>& work) {
  try {
    work();
    return {};
  } catch (const c10::ValueError& error) {
    return {Kind::Value, error.what_without_backtrace()};
  } catch (const CollectiveError& error) {
    return {Kind::Lost, error.what_without_backtrace()};
  } catch (const c10::Error& error) {
    return {Kind::Data, error.what_without_backtrace()};
  } catch (const std::exception& error) {
    return {Kind::Data, error.what()};
  }
}

SaveAgreement::SaveAgreement(comm::Job* job, std::string name, std::chrono::milliseconds timeout)
    : job_(job), name_(std::move(name)), timeout_(timeout) {}

int SaveAgreement::worker() const { return job_ == nullptr ? 0 : job_->worker(); }

int SaveAgreement::num_workers() const { return job_ == nullptr ? 1 : job_->num_workers(); }

SaveOutcome SaveAgreement::agree(int64_t save, const SaveOutcome& mine, const std::function<SaveOutcome()>& complete) {
  if (job_ == nullptr) return mine.is_done() ? complete() : mine;
  const std::string key = name_ + "/" + std::to_string(save) + "/";
  SaveOutcome outcome;
  const SaveOutcome lost = SaveOutcome::of([&] {
    if (job_->worker() == 0) {
      outcome = agree_as_first(key, mine, complete);
      return;
    }
    const std::string own = std::to_string(job_->worker());
    job_->set(key + own, outcome_text(mine));
    outcome = parse_outcome(job_->get(key + "end", timeout_));
    job_->set(key + "known/" + own, "");
  });
  return lost.is_done() ? outcome : SaveOutcome{SaveOutcome::Kind::Lost, lost.text};
}

SaveOutcome SaveAgreement::agree_as_first(const std::string& key, const SaveOutcome& mine,
                                          const std::function<SaveOutcome()>& complete) {
  SaveOutcome outcome = mine;
  for (int worker = 1; worker < job_->num_workers(); ++worker) {
    const SaveOutcome theirs = parse_outcome(job_->get(key + std::to_string(worker), timeout_));
    if (outcome.is_done() && !theirs.is_done()) {
      outcome = {theirs.kind, theirs.text + " (" + job_->name(worker) + ")"};
    }
  }
  if (outcome.is_done()) outcome = complete();
  job_->set(key + "end", outcome_text(outcome));
  // The values of the job end with this worker, which must not leave before all know the outcome.
  const SaveOutcome all_know = SaveOutcome::of([&] {
    for (int worker = 1; worker < job_->num_workers(); ++worker) {
      if (!job_->has_left(worker)) job_->get(key + "known/" + std::to_string(worker), timeout_);
    }
  });
  if (all_know.is_done()) {
    drop_values(key);
  } else {
    LOCKSTEP_LOG(Warn) << "[CheckpointManager] after a save: " << all_know.text;
  }
  return outcome;
}

void SaveAgreement::drop_values(const std::string& key) {
  job_->drop(key + "end");
  for (int worker = 1; worker < job_->num_workers(); ++worker) {
    job_->drop(key + std::to_string(worker));
    job_->drop(key + "known/" + std::to_string(worker));
  }
}

}  // namespace lockstep::detail
