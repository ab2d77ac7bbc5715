#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/api.h"
#include "lockstep/comm/views/membership.h"

/// Messages of elastic jobs, after the handshake (lockstep/comm/job/handshake.h): between workers and the launcher that
/// issues views, and between that launcher and others that have joined it.
namespace lockstep::comm::views {

struct ViewMessage {
  enum class Type : uint64_t {
    /// The sender is alive. From launchers that have joined, `step` is the highest of their workers.
    Heartbeat,

    /// From a worker. It asks for the next view: `number` is an AskReason, `step` its last finished step, `address` its
    /// own, `text` why, `other` the number of a silent worker, or 0.
    Ask,
    /// It goes on after `step`, whose state came from `text` ("memory", "disk", "nothing was saved").
    Resumed,

    /// To a worker. The next view: `text` is an encoded View.
    NewView,
    /// Leave view `number` after a step: others wait for the next one. `other` 1: some of them cannot read the memory
    /// of the members' machines; this may follow a message with 0.
    Pending,
    /// View `number` cannot go on: a member has ended, or cannot go on; `text` says which.
    Lost,
    /// There will be no view any more; `text` is why.
    Ended,

    /// From a launcher that has joined: it can run `number` workers at a time, of the machine `text`.
    Offer,
    /// Its worker `number` has ended with the wait status `other`; `step` is its last step.
    Exited,

    /// To a launcher that has joined: start worker `number`, the `other`-th start of its place; `text` is its name.
    Start,
    /// Send the signal `other` to worker `number`.
    Signal,
    /// The job has ended with the exit status `number`.
    Finish,
    End,
  };

  Type type = Type::Heartbeat;
  uint64_t number = 0;
  uint64_t other = 0;
  int64_t step = -1;
  std::string address{};
  std::string text{};
};

LOCKSTEP_API std::string encode(const ViewMessage& message);
/// ProtocolError where the content is no message.
LOCKSTEP_API ViewMessage decode_view_message(std::string_view content);

LOCKSTEP_API std::string encode(const View& view);
LOCKSTEP_API View decode_view(std::string_view content);

/// In the Hello of those who connect to the launcher: no job has so few workers that join, so that a handshake for one
/// is worth nothing for the other.
constexpr uint64_t kViewHello = 1;
/// The number of a launcher in its Hello. Workers have higher ones.
constexpr uint64_t kLauncherNumber = 1;
constexpr uint64_t kFirstWorkerNumber = 2;
constexpr uint64_t kLastWorkerNumber = uint64_t{1} << 30;

}  // namespace lockstep::comm::views
