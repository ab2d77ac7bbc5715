#pragma once

#include <chrono>
#include <string>

#include "lockstep/cluster/http.h"
#include "lockstep/cluster/json_text.h"

/// Requests of resolvers to services.
namespace lockstep::detail {

using ServiceClock = std::chrono::steady_clock;

/// How long requests are repeated where the caller gives no deadline.
constexpr std::chrono::seconds kServiceTime{60};
/// Returns the deadline of requests that begin now.
inline ServiceClock::time_point service_deadline() { return ServiceClock::now() + kServiceTime; }

/// Waits between attempts: 50 ms at first, then each time twice as long, up to 5 s.
class RetryPause {
 public:
  explicit RetryPause(ServiceClock::time_point deadline) : deadline_(deadline) {}

  /// Waits, `least` or longer, and returns true; returns false at once where the deadline would pass.
  bool wait(std::chrono::milliseconds least = {});

 private:
  ServiceClock::time_point deadline_;
  std::chrono::milliseconds next_{50};
};

/// Makes a request and returns the answer's text. A service that is overloaded or restarts (429, 503) is asked again
/// until the deadline. Throws `ContextError` with the status and that text unless it is a success.
std::string request_text(const HttpClient& client, const HttpRequest& request, ServiceClock::time_point deadline);

/// Makes a request and returns the answer, a JSON object. Throws as `request_text`, and where it is something else.
Json request_json(const HttpClient& client, const HttpRequest& request, ServiceClock::time_point deadline);

/// Makes a request that carries a bearer token. Throws `c10::ValueError` where the address is not one of https.
HttpRequest request_with_token(const std::string& url, const std::string& token);
/// Throws `c10::ValueError` where a token may not be sent to this address.
void check_can_carry_token(const std::string& url);

/// Escapes a text for a part of an address.
std::string url_escaped(const std::string& text);

/// Requests to services of Google Cloud, with the service account of this machine. Its token is fetched once and used
/// until shortly before it expires. Not thread-safe.
class GoogleApi {
 public:
  /// `metadata` is the address of the machine's metadata service.
  GoogleApi(HttpClient client, std::string metadata);

  /// Returns the project and the zone of this machine.
  std::string project() const;
  std::string zone() const;

  /// Asks a service, by https only; `body` as in HttpRequest. Throws as `request_json`.
  Json ask(const std::string& url, const std::string& body = "") const;

 private:
  std::string metadata_text(const std::string& path) const;
  const std::string& token() const;

  HttpClient client_;
  std::string metadata_;
  mutable std::string token_;
  mutable ServiceClock::time_point token_end_{};
};

}  // namespace lockstep::detail
