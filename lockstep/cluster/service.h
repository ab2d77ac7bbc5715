#pragma once

#include <string>

#include "lockstep/cluster/http.h"
#include "lockstep/cluster/json_text.h"

/// Requests of resolvers to services.
namespace lockstep::detail {

/// Makes a request and returns the answer's text. Throws `ContextError` with the status and that text unless it is a
/// success.
std::string request_text(const HttpClient& client, const HttpRequest& request);

/// Makes a request and returns the answer, a JSON object. Throws as `request_text`, and where it is something else.
Json request_json(const HttpClient& client, const HttpRequest& request);

/// Makes a request that carries a bearer token. Throws `c10::ValueError` where the address is not one of https.
HttpRequest request_with_token(const std::string& url, const std::string& token);
/// Throws `c10::ValueError` where a token may not be sent to this address.
void check_can_carry_token(const std::string& url);

/// Escapes a text for a part of an address.
std::string url_escaped(const std::string& text);

/// Requests to services of Google Cloud, with the service account of this machine.
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

  HttpClient client_;
  std::string metadata_;
};

}  // namespace lockstep::detail
