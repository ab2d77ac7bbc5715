#include "tools/train/setting_checks.h"

#include <algorithm>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "tools/command/nearest.h"

namespace lockstep::tools {
namespace {

void check_applies(const Settings& given, const TrainPlan& plan) {
  struct Rule {
    const char* name;
    bool applies;
    const char* needs;
  };
  const std::string model = plan.settings.text("model");
  const bool is_gpt = model == "gpt";
  const bool has_names = plan.form.kind != "text" && plan.form.kind != "images";
  const std::vector<Rule> rules{
      {"hidden", model == "mlp" || model == "cnn" || model == "resnet", "the model mlp, cnn or resnet"},
      {"width", is_gpt, "the model gpt"},
      {"layers", is_gpt, "the model gpt"},
      {"heads", is_gpt, "the model gpt"},
      {"length", plan.form.kind == "text", "text"},
      {"image-size", plan.form.is_image, "JPEG or PNG images"},
      {"input-shape", has_names && !plan.form.is_image, "data that are neither text nor JPEG or PNG images"},
      {"target", has_names, "data with names"},
      {"features", has_names, "data with names"},
      {"classes", has_names && plan.form.task == Task::Classes, "data with names and integer classes"},
      {"label-smoothing", plan.settings.text("loss") == "cross_entropy", "the loss cross_entropy"},
      {"momentum", plan.settings.text("optimizer") == "sgd", "the optimizer sgd"},
      {"patience", plan.settings.has("validation"), "--validation"},
  };
  for (const Rule& rule : rules) {
    LOCKSTEP_CHECK_VALUE(rule.applies || !given.has(rule.name), "[train] --", rule.name, " is for ", rule.needs,
                         ": model=", model, ", data=", plan.form.kind, "; leave it out");
  }
  LOCKSTEP_CHECK_VALUE(plan.form.task != Task::Sequence || !given.has("normalize") ||
                           given.text("normalize") == "none" || given.text("normalize") == "auto",
                       "[train] text is not scaled: --normalize=", given.text("normalize"), "; leave it out");
}

void check_warm_up(const TrainPlan& plan) {
  const int64_t warm_up = plan.settings.integer("warm-up");
  const int64_t updates = plan.steps_per_epoch() * plan.settings.integer("epochs");
  LOCKSTEP_CHECK_VALUE(warm_up < updates, "[train] the warm-up must end before the training: --warm-up=", warm_up,
                       ", updates=", updates, "; make it shorter, or train for more epochs");
}

}  // namespace

void check_metrics(const Settings& settings) {
  const std::vector<std::string> names = settings.list("metrics");
  for (const std::string& name : names) {
    LOCKSTEP_CHECK_VALUE(std::count(names.begin(), names.end(), name) == 1,
                         "[train] a metric is given twice: --metrics=", enumeration(names), ", metric=", name,
                         "; give it once");
    LOCKSTEP_CHECK_VALUE(name != "none" || names.size() == 1,
                         "[train] none excludes other metrics: --metrics=", enumeration(names),
                         "; leave none out, or the others");
  }
}

void check_settings(const Settings& given, const TrainPlan& plan) {
  check_applies(given, plan);
  check_metrics(plan.settings);
  check_warm_up(plan);
}

}  // namespace lockstep::tools
