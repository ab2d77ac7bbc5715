#pragma once

#include <string>

#include "lockstep/cluster/http.h"
#include "lockstep/cluster/json_text.h"

/// How resolvers ask services.
namespace lockstep::detail {

/// Makes a request and returns the answer's text. Throws `ContextError` with the status and that text unless it is a
/// success.
std::string request_text(const HttpClient& client, const HttpRequest& request);

/// The same for an answer that is an object in JSON.
Json request_json(const HttpClient& client, const HttpRequest& request);

/// Escapes a text for a part of an address.
std::string url_escaped(const std::string& text);

}  // namespace lockstep::detail
