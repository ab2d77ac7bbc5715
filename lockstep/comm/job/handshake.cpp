#include "lockstep/comm/job/handshake.h"

#include <utility>

#include "lockstep/comm/job/crypto.h"
#include "lockstep/comm/job/frame.h"

namespace lockstep::comm::job {
namespace {

// Tells a joiner from other programs that connect by mistake.
constexpr std::string_view kMagic = "lockstep job";
// First fields of the messages; they differ from the types of a Message.
constexpr uint64_t kChallenge = 101;
constexpr uint64_t kProof = 102;
constexpr uint64_t kWelcome = 103;
constexpr size_t kNonceBytes = 32;
constexpr size_t kCodeBytes = 16;

FieldReader read_step(std::string_view content, uint64_t step) {
  FieldReader reader(content);
  if (reader.number() != step) throw ProtocolError("it sent a message out of the order of the handshake");
  return reader;
}

void check_nonce(const std::string& nonce) {
  if (nonce.size() != kNonceBytes) throw ProtocolError("it sent a nonce of a wrong size");
}

std::chrono::milliseconds duration(FieldReader& reader) {
  constexpr std::chrono::milliseconds kYear = std::chrono::hours(24 * 365);
  return std::chrono::milliseconds(reader.number_below(static_cast<uint64_t>(kYear.count())));
}

}  // namespace

std::string encode(const Hello& hello) {
  FieldWriter writer;
  writer.text(kMagic).number(hello.version).number(hello.worker).number(hello.num_workers).text(hello.nonce);
  return writer.take();
}

Hello decode_hello(std::string_view content) {
  FieldReader reader(content);
  if (reader.text() != kMagic) throw ProtocolError("it sent no message of a job");
  Hello hello;
  hello.version = reader.number();
  // Other versions may have other fields.
  if (hello.version != kProtocolVersion) return hello;
  hello.worker = reader.number();
  hello.num_workers = reader.number();
  hello.nonce = reader.text();
  reader.finish();
  check_nonce(hello.nonce);
  return hello;
}

std::string encode(const Challenge& challenge) { return FieldWriter().number(kChallenge).text(challenge.nonce).take(); }

Challenge decode_challenge(std::string_view content) {
  FieldReader reader = read_step(content, kChallenge);
  Challenge challenge{.nonce = reader.text()};
  reader.finish();
  check_nonce(challenge.nonce);
  return challenge;
}

std::string encode(const Proof& proof) {
  return FieldWriter().number(kProof).text(proof.machine).text(proof.digest).take();
}

Proof decode_proof(std::string_view content) {
  FieldReader reader = read_step(content, kProof);
  Proof proof;
  proof.machine = reader.text();
  proof.digest = reader.text();
  reader.finish();
  return proof;
}

std::string encode(const Welcome& welcome) {
  FieldWriter writer;
  writer.number(kWelcome);
  writer.number(static_cast<uint64_t>(welcome.heartbeat_interval.count()));
  writer.number(static_cast<uint64_t>(welcome.heartbeat_timeout.count()));
  return writer.text(welcome.digest).take();
}

Welcome decode_welcome(std::string_view content) {
  FieldReader reader = read_step(content, kWelcome);
  Welcome welcome;
  welcome.heartbeat_interval = duration(reader);
  welcome.heartbeat_timeout = duration(reader);
  welcome.digest = reader.text();
  reader.finish();
  return welcome;
}

std::string fresh_nonce() { return random_bytes(kNonceBytes); }

Signer::Signer(std::string token, std::string hello, std::string challenge)
    : token_(std::move(token)), transcript_(FieldWriter().text(hello).text(challenge).take()) {}

std::string Signer::digest(std::string_view role, std::string_view content) const {
  if (token_.empty()) return {};
  return hmac_sha256(token_, FieldWriter().text(role).text(transcript_).text(content).take());
}

Proof Signer::sign(Proof proof) const {
  proof.digest.clear();
  proof.digest = digest("joiner", encode(proof));
  return proof;
}

Welcome Signer::sign(Welcome welcome) const {
  welcome.digest.clear();
  welcome.digest = digest("coordinator", encode(welcome));
  return welcome;
}

bool Signer::is_signed(const Proof& proof) const { return equal_in_constant_time(sign(proof).digest, proof.digest); }

bool Signer::is_signed(const Welcome& welcome) const {
  return equal_in_constant_time(sign(welcome).digest, welcome.digest);
}

std::string Seal::code(std::string_view content) {
  if (key_.empty()) return {};
  return hmac_sha256(key_, FieldWriter().number(number_++).text(content).take()).substr(0, kCodeBytes);
}

std::string Seal::close(std::string_view content) { return std::string(content) + code(content); }

std::string Seal::open(std::string content) {
  const size_t size = key_.empty() ? 0 : kCodeBytes;
  if (content.size() < size) throw ProtocolError("it sent a message without a seal");
  const std::string found = content.substr(content.size() - size);
  content.resize(content.size() - size);
  if (!equal_in_constant_time(code(content), found)) throw ProtocolError("it sent a message with a wrong seal");
  return content;
}

}  // namespace lockstep::comm::job
