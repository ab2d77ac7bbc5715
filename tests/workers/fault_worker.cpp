// A worker that trains and misbehaves when it is told to, before the first restart. It prints lines of JSON: that it
// joins, that it trains, when it misbehaved, and how it ended. Times are of the machine's monotonic clock, which all
// its processes share.
//
//   fault_worker [--victim WORKER --fault FAULT --when WHEN] [--NAME NUMBER]...
//
//   --fault   kill, stop    this signal to itself
//             slow          sleeps for --pause seconds
//             lag           sleeps for --pause seconds in every step; no fault: training goes on
//             shape, call   another shape, or another collective, than all others
//             elsewhere     a collective outside of run while all others are in one inside
//             throw         its last replica throws
//             return        its last replica returns without the collectives of all others; then it sleeps for --pause
//             reduce        its last replica reduces its gradients once more than all others
//             order         its last replica steps two optimizers in another order than all others
//             leave         it ends well, without the steps that all others go on with
//             fork          it forks a process that exits; no fault: training goes on
//   --when    inside        in collectives (kill, stop), in the replica's function before one, or before backward
//   (throw)
//             late          as inside, but after the others have waited for a while
//             backward      in the backward pass
//             between       outside of run
//             exit          by std::exit, while the strategy exists (leave)
//   --steps   trains so long and compares what it has learnt with plain LibTorch; else until something ends it
//   --pause   seconds that a slow victim sleeps, and all others after each of their --steps
//   --linger  seconds that it lives on after an error, for launchers that end all workers with the first
//   --device  CPU, or GPU: the first card, which all workers share
//   --devices how many logical devices it has

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <map>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <torch/torch.h>

#include "lockstep/lockstep.h"

namespace {

namespace ls = lockstep;
using Json = nlohmann::ordered_json;

constexpr int kFaultyStep = 3;
constexpr double kLate = 0.7;
constexpr const char* kReason = "the data is broken";
constexpr int kRows = 12;
constexpr int kColumns = 5;
constexpr double kLearningRate = 0.05;
constexpr int64_t kLarge = 1 << 20;  // elements: a collective of it takes a while

struct Orders {
  int victim = -1;
  std::string fault;
  std::string when;
  int steps = 0;
  std::string device;
  int devices = 1;
  double pause = 0;
  double linger = 0;
};

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

void say(Json event) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);  // replicas misbehave at the same time
  event["at"] = now();
  std::cout << event.dump() << std::endl;
}

Orders parse(int argc, char** argv) {
  std::map<std::string, std::string> given;
  for (int i = 1; i + 1 < argc; i += 2) given[argv[i]] = argv[i + 1];
  const auto value = [&](const char* name, const char* otherwise) {
    return given.contains(name) ? given[name] : std::string(otherwise);
  };
  return {.victim = std::stoi(value("--victim", "-1")),
          .fault = value("--fault", ""),
          .when = value("--when", ""),
          .steps = std::stoi(value("--steps", "0")),
          .device = value("--device", "CPU"),
          .devices = std::stoi(value("--devices", "1")),
          .pause = std::stod(value("--pause", "0")),
          .linger = std::stod(value("--linger", "0"))};
}

void sleep(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

// The fault of this process; does nothing in other workers than the victim.
class Misbehaviour {
 public:
  Misbehaviour(Orders orders, int worker)
      : orders_(std::move(orders)), is_victim_(worker == orders_.victim && is_first_attempt()) {}

  bool wants(int step, const char* fault, const char* when) const {
    return is_victim_ && step == kFaultyStep && orders_.fault == fault && orders_.when == when;
  }

  void sleep_here(int step, const char* when) const {
    if (is_victim_ && orders_.fault == "lag" && orders_.when == when) sleep(orders_.pause);
    if (!wants(step, "slow", when)) return;
    say({{"event", "fault"}});
    sleep(orders_.pause);
  }

  // Sends the signal now, or from another thread while the calling thread is in collectives.
  void send_signal(int step) const {
    for (const auto& [fault, signal] : {std::pair("kill", SIGKILL), std::pair("stop", SIGSTOP)}) {
      if (wants(step, fault, "between")) raise_now(signal);
      if (!wants(step, fault, "inside")) continue;
      std::thread([signal = signal] {
        sleep(0.1);
        raise_now(signal);
      }).detach();
    }
  }

  bool throws(int step, const char* when, int local_replica) const {
    return is_last_replica_to(step, "throw", when, local_replica);
  }

  // Whether the calling replica is the one that misbehaves now.
  bool is_last_replica_to(int step, const char* fault, const char* when, int local_replica) const {
    if (!wants(step, fault, when) || local_replica != orders_.devices - 1) return false;
    if (std::string(when) == "late") sleep(kLate);
    say({{"event", "fault"}});
    return true;
  }

  bool returns(int step, int local_replica) const {
    return is_last_replica_to(step, "return", "inside", local_replica) ||
           is_last_replica_to(step, "return", "late", local_replica);
  }
  void sleep_after_return(int step) const {
    if (wants(step, "return", "inside") || wants(step, "return", "late")) sleep(orders_.pause);
  }

  bool has_two_optimizers() const { return orders_.fault == "order"; }

  double pause() const { return is_victim_ ? 0 : orders_.pause; }

 private:
  static bool is_first_attempt() {
    const char* restarts = std::getenv("LOCKSTEP_RESTART");
    return restarts == nullptr || std::string(restarts) == "0";
  }

  static void raise_now(int signal) {
    say({{"event", "fault"}});
    kill(getpid(), signal);
  }

  Orders orders_;
  bool is_victim_;
};

torch::Tensor inputs(int step) { return torch::sin(torch::arange(kRows * kColumns).view({kRows, kColumns}) + step); }

torch::Tensor start_weights() { return torch::linspace(-1, 1, kColumns).view({1, kColumns}); }

// The parameters that a single process learns.
torch::Tensor plain_weights(int steps) {
  torch::Tensor weights = start_weights().requires_grad_();
  torch::optim::SGD optimizer({weights}, kLearningRate);
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    torch::matmul(inputs(step), weights.t()).sub(1).square().mean().backward();
    optimizer.step();
  }
  return weights.detach();
}

void run_forked_process() {
  const pid_t child = fork();
  if (child == 0) std::exit(0);
  waitpid(child, nullptr, 0);
}

class Training {
 public:
  Training(const ls::Strategy& strategy, const Misbehaviour& misbehaviour)
      : strategy_(strategy),
        misbehaviour_(misbehaviour),
        model_(ls::module<torch::nn::Linear>(torch::nn::LinearOptions(kColumns, 1).bias(false))),
        optimizer_(ls::optimizer<torch::optim::SGD>(model_, kLearningRate)),
        other_model_(ls::module<torch::nn::Linear>(torch::nn::LinearOptions(kColumns, 1).bias(false))),
        other_optimizer_(ls::optimizer<torch::optim::SGD>(other_model_, kLearningRate)) {
    const torch::NoGradGuard no_grad;
    for (int i = 0; i < model_.num_replicas(); ++i) model_.replica(i).weight.copy_(start_weights());
  }

  void take_step(int step) {
    misbehaviour_.sleep_here(step, "between");
    misbehaviour_.send_signal(step);
    if (misbehaviour_.wants(step, "fork", "between")) run_forked_process();
    if (misbehaviour_.wants(step, "elsewhere", "between")) {
      say({{"event", "fault"}});
      strategy_.reduce("sum", *last_values_);
    }
    strategy_.run([&] {
      if (misbehaviour_.returns(step, local_replica())) return;
      learn(step);
      misbehaviour_.sleep_here(step, "inside");
      reduce_inside(step);
    });
    misbehaviour_.sleep_after_return(step);
    reduce_outside(step);
  }

  torch::Tensor weights() { return model_.replica(0).weight.detach().cpu(); }

 private:
  int local_replica() const { return ls::get_replica_context().replica_id_in_sync_group() % model_.num_replicas(); }

  void learn(int step) {
    const int replicas = strategy_.num_replicas_in_sync();
    const int replica = ls::get_replica_context().replica_id_in_sync_group();
    const auto x = inputs(step).tensor_split(replicas)[static_cast<size_t>(replica)];
    const int local = local_replica();
    for (const char* when : {"inside", "late"}) {
      if (misbehaviour_.throws(step, when, local)) throw std::runtime_error(kReason);
    }
    const bool in_other_order = misbehaviour_.is_last_replica_to(step, "order", "inside", local);
    if (in_other_order) learn_other(x);
    const auto output = model_->forward(x);
    if (misbehaviour_.throws(step, "backward", local)) {
      output.register_hook([](const torch::Tensor&) { throw std::runtime_error(kReason); });
    }
    const auto error = output.sub(1).square().squeeze(1);
    if (misbehaviour_.is_last_replica_to(step, "reduce", "inside", local)) optimizer_.reduce_gradients();
    optimizer_.minimize(ls::average_loss(error, kRows));
    if (misbehaviour_.has_two_optimizers() && !in_other_order) learn_other(x);
  }

  void learn_other(const torch::Tensor& x) {
    other_optimizer_.minimize(ls::average_loss(other_model_->forward(x).squeeze(1), kRows));
  }

  void reduce_inside(int step) {
    const auto context = ls::get_replica_context();
    const double mine = context.replica_id_in_sync_group() + step;
    int64_t size = kLarge;
    if (misbehaviour_.wants(step, "shape", "inside")) {
      say({{"event", "fault"}});
      size = 7;
    }
    if (misbehaviour_.wants(step, "call", "inside")) {
      say({{"event", "fault"}});
      context.all_gather(torch::full({size}, mine), 0);
    }
    const auto sum = context.all_reduce("sum", torch::full({size}, mine));
    const double replicas = context.num_replicas_in_sync();
    if ((sum != replicas * (replicas - 1) / 2 + replicas * step).any().item<bool>()) {
      throw std::runtime_error("a sum is wrong");
    }
  }

  void reduce_outside(int step) {
    const auto values = strategy_.run([&] { return torch::full({kColumns}, step); });
    if (misbehaviour_.wants(step, "shape", "between")) {
      say({{"event", "fault"}});
      strategy_.reduce("sum", strategy_.run([&] { return torch::full({7}, step); }));
    }
    if (misbehaviour_.wants(step, "call", "between")) {
      say({{"event", "fault"}});
      strategy_.gather(values, 0);
    }
    strategy_.reduce("sum", values);
    last_values_ = values;
  }

  const ls::Strategy& strategy_;
  const Misbehaviour& misbehaviour_;
  ls::Module<torch::nn::Linear> model_;
  ls::Optimizer<torch::optim::SGD> optimizer_;
  ls::Module<torch::nn::Linear> other_model_;
  ls::Optimizer<torch::optim::SGD> other_optimizer_;
  std::optional<ls::PerReplica<torch::Tensor>> last_values_;
};

void train(const Orders& orders) {
  ls::set_logical_devices(orders.device, orders.devices);
  ls::set_threads_per_replica(1);
  std::vector<std::string> devices;
  for (int i = 0; i < orders.devices; ++i) devices.push_back(orders.device + ":" + std::to_string(i));
  say({{"event", "joins"}});
  const ls::MultiWorkerMirroredStrategy strategy(nullptr, {}, devices);
  const auto place = ls::worker_place(*strategy.cluster_resolver());
  const Misbehaviour misbehaviour(orders, place ? place->index : 0);
  const auto scope = strategy.scope();
  Training training(strategy, misbehaviour);
  for (int step = 0; orders.steps == 0 || step < orders.steps; ++step) {
    if (misbehaviour.wants(step, "leave", "between")) return say({{"event", "fault"}});
    if (misbehaviour.wants(step, "leave", "exit")) {
      say({{"event", "fault"}});
      std::exit(0);
    }
    training.take_step(step);
    if (step == 0) say({{"event", "trains"}, {"engine", strategy.engine()}});
    if (orders.steps > 0) sleep(misbehaviour.pause());
  }
  if (!torch::allclose(training.weights(), plain_weights(orders.steps)))
    throw std::runtime_error("it learnt something else");
}

int end_with(const char* type, const std::string& text, int cause = -1) {
  say({{"event", "error"}, {"type", type}, {"cause", cause}, {"text", text}});
  return 3;
}

int run(const Orders& orders) try {
  train(orders);
  say({{"event", "done"}});
  return 0;
} catch (const ls::WorkerError& error) {
  return end_with("WorkerError", error.what_without_backtrace(), error.worker());
} catch (const ls::CollectiveError& error) {
  return end_with("CollectiveError", error.what_without_backtrace());
} catch (const c10::ValueError& error) {
  return end_with("ValueError", error.what_without_backtrace());
} catch (const std::exception& error) {
  return end_with("exception", error.what());
}

}  // namespace

int main(int argc, char** argv) {
  const Orders orders = parse(argc, argv);
  const int status = run(orders);
  if (status != 0) sleep(orders.linger);
  return status;
}
