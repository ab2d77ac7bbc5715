#include "lockstep/comm/job/channel.h"

#include <array>
#include <cerrno>
#include <utility>

namespace lockstep::comm::job {
namespace {

constexpr size_t kReadBytes = 16384;
constexpr int kReadsOfMember = 64;

bool would_block(int code) { return code == EAGAIN || code == EWOULDBLOCK || code == EINTR; }

}  // namespace

void Channel::trust(Seal outgoing, Seal incoming) {
  outgoing_seal_ = std::move(outgoing);
  incoming_seal_ = std::move(incoming);
  reader_.set_limit(kMemberLimit);
  reads_at_once_ = kReadsOfMember;
}

void Channel::send(std::string_view content) {
  if (!is_open() || is_overfull_) return;
  if (unsent_bytes() + content.size() > unsent_limit_) {
    is_overfull_ = true;
    return;
  }
  if (sent_ > unsent_.size() / 2) unsent_.erase(0, std::exchange(sent_, 0));
  unsent_ += to_frame(outgoing_seal_.close(content));
  flush();
}

void Channel::flush() {
  while (is_open() && has_unsent()) {
    const ssize_t sent =
        ::send(socket_.descriptor(), unsent_.data() + sent_, unsent_.size() - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && would_block(errno)) return;
    sent_ = sent < 0 ? unsent_.size() : sent_ + static_cast<size_t>(sent);
  }
  unsent_.clear();
  sent_ = 0;
}

void Channel::finish_sending() {
  if (is_open()) shutdown(socket_.descriptor(), SHUT_WR);
}

bool Channel::receive() { return read(/*keep=*/true); }

bool Channel::discard() { return read(/*keep=*/false); }

bool Channel::read(bool keep) {
  std::array<char, kReadBytes> bytes;
  for (int i = 0; i < reads_at_once_; ++i) {
    const ssize_t got = recv(socket_.descriptor(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got < 0 && would_block(errno)) return true;
    if (got <= 0) {
      error_ = got < 0 ? errno : 0;
      return false;
    }
    if (keep) reader_.feed({bytes.data(), static_cast<size_t>(got)});
    if (static_cast<size_t>(got) < bytes.size()) return true;
  }
  return true;
}

std::optional<std::string> Channel::next() {
  auto content = reader_.next();
  if (content) *content = incoming_seal_.open(std::move(*content));
  return content;
}

}  // namespace lockstep::comm::job
