#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/api.h"

namespace lockstep {

struct LOCKSTEP_API HttpRequest {
  std::string url{};
  /// Each as "Name: value".
  std::vector<std::string> headers{};
  /// Sent as JSON with POST; empty: GET.
  std::string body{};
  /// File with the authorities to trust; empty: those of the system.
  std::string ca_file{};
  std::chrono::seconds timeout{10};
  /// Whether the proxy in the environment (http_proxy, https_proxy, no_proxy) is used. A service of this machine alone,
  /// such as a metadata server, must be asked without: a proxy answers with its own machine's values.
  bool use_proxy = true;
};

struct LOCKSTEP_API HttpResponse {
  int status = 0;
  std::string body{};
  /// How long the service asks to wait before the next request (the header Retry-After); 0: it does not say.
  std::chrono::seconds retry_after{0};
};

/// Makes a request. Resolvers that ask services take one, so that a program can replace `http_request`.
using HttpClient = std::function<HttpResponse(const HttpRequest&)>;

/// Makes a request with libcurl; certificates are always checked. Throws `ContextError` where no answer comes, and
/// `c10::NotImplementedError` where lockstep was built without libcurl.
LOCKSTEP_API HttpResponse http_request(const HttpRequest& request);

}  // namespace lockstep
