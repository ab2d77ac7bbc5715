#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/api.h"

/// How a joiner and the coordinator prove to each other that they know the job's token, without sending it.
///
///   1. Joiner: Hello, its number and a nonce.
///   2. Coordinator: Challenge, a nonce.
///   3. Joiner: Proof, the HMAC of both messages under the token.
///   4. Coordinator: Welcome, an HMAC of both messages in its own role.
///
/// All messages are part of what is signed, so they can neither be changed nor replayed. A TurnedAway message may take
/// the place of 2 and 4. After the handshake each frame carries a Seal.
namespace lockstep::comm::job {

/// Changes with every incompatible change of the protocol.
constexpr uint64_t kProtocolVersion = 2;

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

/// Returns a nonce for a Hello or a Challenge.
std::string fresh_nonce();

/// Signs the messages of one handshake. With an empty token all digests are empty.
class Signer {
 public:
  Signer(std::string token, std::string hello, std::string challenge);

  Proof sign(Proof proof) const;
  Welcome sign(Welcome welcome) const;
  /// Whether the digest is the one that `sign` gives, compared in constant time.
  bool is_signed(const Proof& proof) const;
  bool is_signed(const Welcome& welcome) const;

  /// The keys of the seals in either direction; empty for an empty token.
  std::string key_to_coordinator() const { return digest("to the coordinator", ""); }
  std::string key_to_member() const { return digest("to a member", ""); }

 private:
  std::string digest(std::string_view role, std::string_view content) const;

  std::string token_;
  std::string transcript_;
};

/// Authenticates the frames of one direction, in their order. Without a key it adds nothing.
class Seal {
 public:
  Seal() = default;
  explicit Seal(std::string key) : key_(std::move(key)) {}

  /// Returns the content with its code appended.
  std::string close(std::string_view content);
  /// Returns the content without its code. ProtocolError where the code is wrong.
  std::string open(std::string content);

 private:
  std::string code(std::string_view content);

  std::string key_;
  uint64_t number_ = 0;
};

}  // namespace lockstep::comm::job
