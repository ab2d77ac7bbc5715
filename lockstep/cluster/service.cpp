#include "lockstep/cluster/service.h"

#include <cctype>

#include "lockstep/base/error.h"

namespace lockstep::detail {

std::string request_text(const HttpClient& client, const HttpRequest& request) {
  HttpResponse response = client(request);
  const bool is_forbidden = response.status == 401 || response.status == 403;
  LOCKSTEP_CHECK_CONTEXT(response.status >= 200 && response.status < 300,
                         "[http_request] the service refuses: url=", request.url, ", status=", response.status,
                         ", answer=", response.body.substr(0, 500),
                         is_forbidden ? "; give the account of this machine or pod the right to read it" : "");
  return std::move(response.body);
}

Json request_json(const HttpClient& client, const HttpRequest& request) {
  Json answer = parse_json(request.url, request_text(client, request));
  LOCKSTEP_CHECK_CONTEXT(answer.is_object(), "[http_request] the service must answer with an object: url=", request.url,
                         ", answer=", answer.dump().substr(0, 500));
  return answer;
}

std::string url_escaped(const std::string& text) {
  constexpr const char* kDigits = "0123456789ABCDEF";
  std::string result;
  for (const unsigned char c : text) {
    if (std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.' || c == '~') {
      result += static_cast<char>(c);
    } else {
      result += {'%', kDigits[c >> 4], kDigits[c & 15]};
    }
  }
  return result;
}

}  // namespace lockstep::detail
