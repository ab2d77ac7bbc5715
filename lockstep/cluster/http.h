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
};

struct LOCKSTEP_API HttpResponse {
  int status = 0;
  std::string body{};
};

/// Makes a request. Resolvers that ask services take one, so that a program can replace `http_request`.
using HttpClient = std::function<HttpResponse(const HttpRequest&)>;

/// Makes a request with libcurl; certificates are always checked. Throws `ContextError` where no answer comes, and
/// `c10::NotImplementedError` where lockstep was built without libcurl.
LOCKSTEP_API HttpResponse http_request(const HttpRequest& request);

}  // namespace lockstep
