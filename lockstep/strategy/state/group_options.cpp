#include "lockstep/strategy/state/group_options.h"

#include <optional>
#include <tuple>

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

namespace lockstep::detail {
namespace {

namespace optim = torch::optim;

/// Calls `visit(name, value)` for each option; `visit` may change the value.
template <class Visit>
void visit_sgd(optim::SGDOptions& options, Visit& visit) {
  visit("lr", options.lr());
  visit("momentum", options.momentum());
  visit("dampening", options.dampening());
  visit("weight_decay", options.weight_decay());
  visit("nesterov", options.nesterov());
}

template <class Options, class Visit>
void visit_adam(Options& options, Visit& visit) {
  visit("lr", options.lr());
  visit("betas.0", std::get<0>(options.betas()));
  visit("betas.1", std::get<1>(options.betas()));
  visit("eps", options.eps());
  visit("weight_decay", options.weight_decay());
  visit("amsgrad", options.amsgrad());
}

template <class Visit>
void visit_adagrad(optim::AdagradOptions& options, Visit& visit) {
  visit("lr", options.lr());
  visit("lr_decay", options.lr_decay());
  visit("weight_decay", options.weight_decay());
  visit("initial_accumulator_value", options.initial_accumulator_value());
  visit("eps", options.eps());
}

template <class Visit>
void visit_rmsprop(optim::RMSpropOptions& options, Visit& visit) {
  visit("lr", options.lr());
  visit("alpha", options.alpha());
  visit("eps", options.eps());
  visit("weight_decay", options.weight_decay());
  visit("momentum", options.momentum());
  visit("centered", options.centered());
}

template <class Visit>
void visit_lbfgs(optim::LBFGSOptions& options, Visit& visit) {
  visit("lr", options.lr());
  visit("max_iter", options.max_iter());
  if (options.max_eval().has_value()) visit("max_eval", *options.max_eval());
  visit("tolerance_grad", options.tolerance_grad());
  visit("tolerance_change", options.tolerance_change());
  visit("history_size", options.history_size());
  if (options.line_search_fn().has_value()) visit("line_search_fn", *options.line_search_fn());
}

template <class Visit>
void visit_rate(optim::OptimizerOptions& options, Visit& visit) {
  double rate = 0;
  try {
    rate = options.get_lr();
  } catch (const c10::Error&) {
    return;  // a kind without a rate
  }
  visit("lr", rate);
  options.set_lr(rate);
}

template <class Visit>
void visit_options(optim::OptimizerOptions& options, Visit visit) {
  if (auto* sgd = dynamic_cast<optim::SGDOptions*>(&options)) {
    visit_sgd(*sgd, visit);
  } else if (auto* adam = dynamic_cast<optim::AdamOptions*>(&options)) {
    visit_adam(*adam, visit);
  } else if (auto* adamw = dynamic_cast<optim::AdamWOptions*>(&options)) {
    visit_adam(*adamw, visit);
  } else if (auto* adagrad = dynamic_cast<optim::AdagradOptions*>(&options)) {
    visit_adagrad(*adagrad, visit);
  } else if (auto* rmsprop = dynamic_cast<optim::RMSpropOptions*>(&options)) {
    visit_rmsprop(*rmsprop, visit);
  } else if (auto* lbfgs = dynamic_cast<optim::LBFGSOptions*>(&options)) {
    visit_lbfgs(*lbfgs, visit);
  } else {
    visit_rate(options, visit);
  }
}

struct AddOption {
  const std::string& parent;
  State& state;

  template <class T>
  void operator()(const char* name, const T& value) const {
    state.set(parent + "." + name, State::Value(value));
  }
};

struct LoadOption {
  LoadPlan::Part& part;

  void operator()(const char* name, double& value) const { value = part.number_or(name, value); }
  void operator()(const char* name, int64_t& value) const { value = part.integer_or(name, value); }
  void operator()(const char* name, std::string& value) const { value = part.text_or(name, value); }
  void operator()(const char* name, bool& value) const {
    const State::Value* const found = part.want_value(name, "flag");
    if (found != nullptr) value = std::get<bool>(*found);
  }
};

}  // namespace

void add_group_options(const optim::OptimizerOptions& options, const std::string& parent, State& state) {
  visit_options(*options.clone(), AddOption{parent, state});
}

std::unique_ptr<optim::OptimizerOptions> load_group_options(const optim::OptimizerOptions& present,
                                                            LoadPlan::Part part) {
  std::unique_ptr<optim::OptimizerOptions> loaded = present.clone();
  visit_options(*loaded, LoadOption{part});
  return loaded;
}

}  // namespace lockstep::detail
