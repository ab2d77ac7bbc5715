#include "lockstep/cluster/http.h"

#include <curl/curl.h>
#include <memory>
#include <mutex>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr size_t kMostBytes = 64u << 20;  // of an answer

size_t keep(const char* data, size_t size, size_t count, void* body) {
  auto& text = *static_cast<std::string*>(body);
  if (text.size() + size * count > kMostBytes) return 0;
  text.append(data, size * count);
  return size * count;
}

void start_curl_once() {
  static std::once_flag flag;
  std::call_once(flag, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
}

struct ListEnd {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};
using HeaderList = std::unique_ptr<curl_slist, ListEnd>;

void append(HeaderList& list, const std::string& header) {
  list.reset(curl_slist_append(list.release(), header.c_str()));
}

}  // namespace

HttpResponse http_request(const HttpRequest& request) {
  start_curl_once();
  const std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> handle(curl_easy_init(), curl_easy_cleanup);
  LOCKSTEP_CHECK_CONTEXT(handle != nullptr, "[http_request] libcurl cannot start");
  CURL* curl = handle.get();
  HeaderList headers;
  for (const std::string& header : request.headers) append(headers, header);
  if (!request.body.empty()) {
    append(headers, "Content-Type: application/json");
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE, static_cast<long>(request.body.size()));
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, request.body.c_str());
  }
  HttpResponse response;
  char error[CURL_ERROR_SIZE] = "";
  curl_easy_setopt(curl, CURLOPT_URL, request.url.c_str());
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(curl, CURLOPT_TIMEOUT, static_cast<long>(request.timeout.count()));
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  if (!request.use_proxy) curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
  if (!request.ca_file.empty()) curl_easy_setopt(curl, CURLOPT_CAINFO, request.ca_file.c_str());
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, error);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, keep);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &response.body);
  const CURLcode code = curl_easy_perform(curl);
  LOCKSTEP_CHECK_CONTEXT(code == CURLE_OK, "[http_request] the service does not answer: url=", request.url, " (",
                         *error != '\0' ? error : curl_easy_strerror(code), ")");
  long status = 0;
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
  response.status = static_cast<int>(status);
  curl_off_t retry_after = 0;
  curl_easy_getinfo(curl, CURLINFO_RETRY_AFTER, &retry_after);
  response.retry_after = std::chrono::seconds(retry_after);
  return response;
}

}  // namespace lockstep
