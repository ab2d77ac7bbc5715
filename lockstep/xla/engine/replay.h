#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/xla/engine/run.h"

namespace lockstep::xla {

/// A step that is known so well that it need not be traced: its program, and which storage each argument comes from and
/// each result goes to.
///
/// A step is traced until two traces in a row are the same program with the same numbers; from then on it is replayed.
/// What a replay cannot know of is the caller's business: the function must be pure.
class LOCKSTEP_API Replay final : private ExecutionListener {
 public:
  /// The tensors of each replica.
  using Tensors = std::vector<std::vector<at::Tensor>>;
  /// Draws `count` seeds of a replica, as a run of the function would.
  using DrawSeeds = std::function<std::vector<int64_t>(int replica, int64_t count)>;

  explicit Replay(const Mesh& mesh);
  ~Replay() override;

  /// Around a run of the function, whose arguments are lazy tensors.
  void begin_trace(const Tensors& arguments);
  void end_trace(const Tensors& results);
  void abandon_trace();

  bool is_ready() const { return is_ready_; }
  /// Why the step is not replayed; empty where it is.
  const std::string& why_not() const { return why_not_; }
  /// Forgets what is known: something has changed that traces depend on.
  void forget(const std::string& why);

  /// Does the step; false where state was replaced or is shared, and the function must be traced again.
  bool replay(const Tensors& arguments, const DrawSeeds& draw_seeds, Tensors& results);

 private:
  struct Source;
  struct Sink;
  struct Number;
  struct Known;

  void on_launch(const Work& work, int replica, const std::shared_ptr<const Program>& program) override;
  void on_apart(const std::string& why) override;
  std::string compare_with_last() const;
  Value present_value(const Source& source, const std::vector<at::Tensor>& arguments, bool is_taken) const;
  void add_arguments(int replica, const std::vector<Value>& values, const DrawSeeds& draw_seeds,
                     LaunchArguments& launch) const;
  std::vector<at::Tensor> take_results(int replica, std::vector<std::vector<Buffer>>& buffers) const;

  std::vector<Place*> places_;
  /// What the last trace said, and the one before, for each replica.
  std::vector<Known> now_;
  std::vector<Known> before_;
  /// The argument nodes of the trace that is under way.
  std::vector<std::vector<Value>> arguments_;
  std::shared_ptr<const Program> program_;
  std::string why_not_ = "it has not been called yet";
  std::string refusal_;
  bool is_ready_ = false;
};

}  // namespace lockstep::xla
