#include <algorithm>
#include <sstream>
#include <utility>

#include "lockstep/base/error.h"
#include "tools/command/nearest.h"
#include "tools/train/settings.h"

namespace lockstep::tools {
namespace {

constexpr auto kText = Setting::Type::Text;
constexpr auto kInteger = Setting::Type::Integer;
constexpr auto kNumber = Setting::Type::Number;
constexpr auto kList = Setting::Type::List;

std::vector<Setting> model_settings() {
  return {
      {"model", kText, "mlp|cnn|resnet|gpt|FILE", "", "mlp, cnn, resnet, gpt, or FILE.pt, a TorchScript model"},
      {"hidden", kList, "INT", "",
       "The widths of the layers of mlp (default 128,64), cnn (32,64) and resnet (16,32,64)"},
      {"width", kInteger, "INT", "64", "The number of features of a character, of gpt", "", 1},
      {"layers", kInteger, "INT", "2", "The number of layers of gpt", "", 1},
      {"heads", kInteger, "INT", "4", "The number of attention heads of gpt; a divisor of the width", "", 1},
  };
}

std::vector<Setting> data_settings() {
  return {
      {"data", kList, "FILE|FOLDER", "",
       "Training data: record files of tf.Example, .npz, .csv with a header, text files, or a folder with a folder of "
       "images for each class"},
      {"target", kText, "NAME", "", "The column, array or feature to learn (default: label, target, y, class)"},
      {"features", kList, "NAME", "", "The columns, arrays or features to learn from (default: all others)"},
      {"classes", kInteger, "INT", "", "The number of classes (default: the largest class of the data, plus 1)", "", 2},
      {"input-shape", kText, "SHAPE", "", "The shape of an example, such as 1x8x8 for gray images of 8 x 8 pixels"},
      {"image-size", kText, "SHAPE", "",
       "Scales images to this size, such as 32x32 (default: that of the first image)"},
      {"length", kInteger, "INT", "64", "The number of characters of a sequence, of text", "", 1},
      {"normalize", kText, "TEXT", "auto",
       "Scaling of inputs, kept with the model: standard (mean 0, variance 1), unit (divided by 255), none; auto: none "
       "for FILE.pt, unit for images, otherwise standard",
       "auto,standard,unit,none"},
      {"shuffle", kInteger, "INT", "10000",
       "0: examples keep their order. Otherwise all are shuffled in every epoch; of record files so many at a time", "",
       0},
      {"validation", kList, "PART|FILE|FOLDER", "",
       "Files or a folder like --data, or the part of it that is held back, such as 0.2"},
  };
}

std::vector<Setting> optimization_settings() {
  return {
      {"loss", kText, "TEXT", "", "The loss (default: cross_entropy for classes, mse for numbers)",
       "cross_entropy,binary_cross_entropy,mse,mae,huber"},
      {"label-smoothing", kNumber, "NUMBER", "0",
       "The part of each target that is given to all classes, of cross_entropy", "", 0, 1},
      {"metrics", kList, "TEXT", "", "Metrics (default: accuracy for classes, mae for numbers)",
       "accuracy,top5_accuracy,perplexity,mse,mae,r2,none"},
      {"optimizer", kText, "TEXT", "adam", "The optimizer", "sgd,adam,adamw,rmsprop,adagrad"},
      {"lr", kNumber, "NUMBER", "", "The learning rate (default: 0.001; 0.05 for sgd, 0.01 for adagrad)"},
      {"momentum", kNumber, "NUMBER", "0.9", "The momentum of sgd", "", 0, 1},
      {"weight-decay", kNumber, "NUMBER", "0", "L2 penalty; for adamw, decoupled weight decay"},
      {"schedule", kText, "TEXT", "constant", "How the learning rate changes",
       "constant,cosine,linear,one_cycle,exponential"},
      {"warm-up", kInteger, "INT", "0", "The number of updates in which the learning rate grows to its first value"},
      {"epochs", kInteger, "INT", "10", "The number of passes over the data", "", 1},
      {"batch-size", kInteger, "INT", "32", "The number of examples of a batch, of all replicas together", "", 1},
      {"accumulate", kInteger, "INT", "1", "The number of batches that make one update", "", 1},
      {"clip-norm", kNumber, "NUMBER", "", "The largest norm of the gradients of an update"},
      {"ema", kNumber, "NUMBER", "",
       "The decay of a moving average of the parameters, such as 0.999; it is what is evaluated", "", 0, 1},
      {"precision", kText, "TEXT", "float32", "What matrix products are computed in", "float32,bfloat16,float16"},
      {"patience", kInteger, "INT", "", "Stops after so many epochs in a row without a better validation loss", "", 1},
      {"seed", kInteger, "INT", "1", "The seed of all random numbers"},
  };
}

std::vector<Setting> place_settings() {
  return {
      {"strategy", kText, "TEXT", "",
       "Where it is computed (default: multi_worker as a worker of a job, mirrored for several replicas, else "
       "one_device)",
       "one_device,mirrored,multi_worker,central,tpu"},
      {"replicas", kInteger, "INT", "", "The number of replicas, of each worker (default: that of the GPUs, or 1)", "",
       1},
      {"devices", kList, "DEVICE", "", "The devices of the replicas, such as GPU:0,GPU:1 or CPU:0,CPU:1"},
  };
}

std::vector<Setting> run_settings() {
  return {
      {"checkpoint-every", kInteger, "INT", "0", "Saves after each so many updates; 0: at the end of each epoch"},
      {"folder", kText, "FOLDER", "",
       "The folder of the run: plan, metrics, checkpoints, model (default: runs/MODEL-TIME)"},
  };
}

std::vector<Setting> make_settings() {
  const std::vector<std::pair<const char*, std::vector<Setting>>> groups{
      {"Model", model_settings()},         {"Data", data_settings()},   {"Optimization", optimization_settings()},
      {"Where it runs", place_settings()}, {"The run", run_settings()},
  };
  std::vector<Setting> settings;
  for (const auto& [group, members] : groups) {
    for (Setting setting : members) {
      setting.group = group;
      settings.push_back(setting);
    }
  }
  return settings;
}

}  // namespace

std::vector<std::string> Setting::allowed() const {
  std::vector<std::string> words;
  std::istringstream text(choices);
  for (std::string word; std::getline(text, word, ',');) words.push_back(word);
  return words;
}

const std::vector<Setting>& all_settings() {
  static const std::vector<Setting> settings = make_settings();
  return settings;
}

const Setting& setting_named(const std::string& name) {
  const auto& settings = all_settings();
  const auto found =
      std::find_if(settings.begin(), settings.end(), [&](const Setting& each) { return each.name == name; });
  LOCKSTEP_ASSERT(found != settings.end(), name);
  return *found;
}

}  // namespace lockstep::tools
