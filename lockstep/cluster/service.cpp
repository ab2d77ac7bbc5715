#include "lockstep/cluster/service.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <string_view>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::detail {

namespace {

/// A token is not used shortly before its end, because requests take a while.
constexpr std::chrono::seconds kTokenMargin{30};

bool asks_to_retry(const HttpResponse& response) { return response.status == 429 || response.status == 503; }

/// Returns how long a token is used; one whose end is not said, as long as the caller lives.
ServiceClock::time_point token_end(const Json& answer) {
  constexpr int64_t kMostSeconds = 1'000'000'000;
  const auto found = answer.find("expires_in");
  if (found == answer.end() || !found->is_number_integer()) return ServiceClock::time_point::max();
  const std::chrono::seconds lifetime(std::clamp<int64_t>(found->get<int64_t>(), 0, kMostSeconds));
  return ServiceClock::now() + std::max(lifetime - kTokenMargin, std::chrono::seconds(0));
}

}  // namespace

bool RetryPause::wait(std::chrono::milliseconds least) {
  constexpr std::chrono::milliseconds kLongest{5000};
  const auto pause = std::max(next_, least);
  if (ServiceClock::now() + pause >= deadline_) return false;
  next_ = std::min(next_ * 2, kLongest);
  std::this_thread::sleep_for(pause);
  return true;
}

std::string request_text(const HttpClient& client, const HttpRequest& request, ServiceClock::time_point deadline) {
  RetryPause pause(deadline);
  HttpResponse response = client(request);
  while (asks_to_retry(response) && pause.wait(response.retry_after)) response = client(request);
  const bool is_forbidden = response.status == 401 || response.status == 403;
  LOCKSTEP_CHECK_CONTEXT(response.status >= 200 && response.status < 300,
                         "[http_request] the service refuses: url=", request.url, ", status=", response.status,
                         ", answer=", response.body.substr(0, 500),
                         is_forbidden              ? "; give the account of this machine or pod the right to read it"
                         : asks_to_retry(response) ? "; the service is overloaded, start again later"
                                                   : "");
  return std::move(response.body);
}

Json request_json(const HttpClient& client, const HttpRequest& request, ServiceClock::time_point deadline) {
  Json answer = parse_json(request.url, request_text(client, request, deadline));
  LOCKSTEP_CHECK_CONTEXT(answer.is_object(), "[http_request] the service must answer with an object: url=", request.url,
                         ", answer is of type ", answer.type_name());
  return answer;
}

void check_can_carry_token(const std::string& url) {
  constexpr std::string_view kScheme = "https://";
  const bool is_https = url.size() > kScheme.size() &&
                        std::equal(kScheme.begin(), kScheme.end(), url.begin(),
                                   [](char expected, unsigned char given) { return expected == std::tolower(given); });
  LOCKSTEP_CHECK_VALUE(is_https, "[http_request] a token is sent by https only: url=", url,
                       "; give the https address of the service");
}

HttpRequest request_with_token(const std::string& url, const std::string& token) {
  check_can_carry_token(url);
  HttpRequest request;
  request.url = url;
  request.headers = {"Authorization: Bearer " + token};
  return request;
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

GoogleApi::GoogleApi(HttpClient client, std::string metadata)
    : client_(std::move(client)), metadata_(std::move(metadata)) {}

std::string GoogleApi::metadata_text(const std::string& path) const {
  HttpRequest request;
  request.url = metadata_ + "/computeMetadata/v1/" + path;
  request.headers = {"Metadata-Flavor: Google"};
  request.use_proxy = false;
  return request_text(client_, request, service_deadline());
}

std::string GoogleApi::project() const { return metadata_text("project/project-id"); }

std::string GoogleApi::zone() const {
  const std::string path = metadata_text("instance/zone");  // projects/NUMBER/zones/ZONE
  return path.substr(path.rfind('/') + 1);
}

const std::string& GoogleApi::token() const {
  if (!token_.empty() && ServiceClock::now() < token_end_) return token_;
  const Json answer = parse_json("account token", metadata_text("instance/service-accounts/default/token"));
  token_ = text_at(answer, {"access_token"});
  LOCKSTEP_CHECK_CONTEXT(!token_.empty(),
                         "[http_request] the metadata service must give a token of this machine's account: metadata=",
                         metadata_, "; attach a service account to the machine");
  token_end_ = token_end(answer);
  return token_;
}

Json GoogleApi::ask(const std::string& url, const std::string& body) const {
  check_can_carry_token(url);
  HttpRequest request = request_with_token(url, token());
  request.body = body;
  return request_json(client_, request, service_deadline());
}

}  // namespace lockstep::detail
