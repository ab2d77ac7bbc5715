#pragma once

#include <string>

#include "lockstep/cluster/http.h"
#include "lockstep/cluster/json_text.h"

namespace lockstep::detail {

/// Asks services of Google's cloud, from a machine in it and as its own account.
class GoogleApi {
 public:
  /// `metadata` is the address of the machine's metadata service.
  GoogleApi(HttpClient client, std::string metadata);

  /// Returns the project and the zone of this machine.
  std::string project() const;
  std::string zone() const;

  /// Asks a service; `body` as in HttpRequest. Throws as `request_json`.
  Json ask(const std::string& url, const std::string& body = "") const;

 private:
  std::string metadata_text(const std::string& path) const;

  HttpClient client_;
  std::string metadata_;
};

}  // namespace lockstep::detail
