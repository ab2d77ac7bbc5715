#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/api.h"

/// How a joiner and the coordinator prove to each other that they know the job's token, without sending it.
///
///   1. Joiner: Hello, who it is and a random number.
///   2. Coordinator: Challenge, a random number.
///   3. Joiner: Proof, the HMAC of all that under the token.
///   4. Coordinator: Welcome, its HMAC of all that in its own role.
///
/// Everything said in between is part of what is signed, so that nothing can be changed on the way or played again; a
/// kTurnedAway message may come in place of 2 and 4. Afterwards each frame carries a Seal.
namespace lockstep::comm::job {

/// Changes whenever members of different builds would not understand each other.
constexpr uint64_t kProtocolVersion = 1;

struct Hello {
  uint64_t version = kProtocolVersion;
  uint64_t worker = 0;
  uint64_t num_workers = 0;
  std::string nonce{};
};

struct Challenge {
  std::string nonce;
};

struct Proof {
  std::string machine;
  std::string digest{};
};

struct Welcome {
  std::chrono::milliseconds heartbeat_interval{};
  std::chrono::milliseconds heartbeat_timeout{};
  std::string digest{};
};

LOCKSTEP_API std::string encode(const Hello& hello);
LOCKSTEP_API std::string encode(const Challenge& challenge);
LOCKSTEP_API std::string encode(const Proof& proof);
LOCKSTEP_API std::string encode(const Welcome& welcome);

/// ProtocolError where the content is something else.
LOCKSTEP_API Hello decode_hello(std::string_view content);
LOCKSTEP_API Challenge decode_challenge(std::string_view content);
LOCKSTEP_API Proof decode_proof(std::string_view content);
LOCKSTEP_API Welcome decode_welcome(std::string_view content);

/// Returns a number for a Hello or a Challenge.
std::string fresh_nonce();

/// Signs what was said in one handshake. With an empty token everything is signed by nothing.
class Signer {
 public:
  Signer(std::string token, std::string hello, std::string challenge);

  Proof sign(Proof proof) const;
  Welcome sign(Welcome welcome) const;
  /// Whether the digest is the one that `sign` gives; takes as long for any other.
  bool is_signed(const Proof& proof) const;
  bool is_signed(const Welcome& welcome) const;

  /// The keys of the seals in either direction; empty for an empty token.
  std::string key_to_coordinator() const { return digest("to the coordinator", ""); }
  std::string key_to_member() const { return digest("to a member", ""); }

 private:
  std::string digest(std::string_view role, std::string_view content) const;

  std::string token_;
  std::string said_;
};

/// Marks the frames of one direction, in their order. Without a key it marks nothing.
class Seal {
 public:
  Seal() = default;
  explicit Seal(std::string key) : key_(std::move(key)) {}

  /// Returns the content with its mark.
  std::string close(std::string_view content);
  /// Returns the content without it. ProtocolError where it is not the right one.
  std::string open(std::string content);

 private:
  std::string mark(std::string_view content);

  std::string key_;
  uint64_t number_ = 0;
};

}  // namespace lockstep::comm::job
