#include "lockstep/cluster/google_api.h"

#include <utility>

#include "lockstep/cluster/service.h"

namespace lockstep::detail {

GoogleApi::GoogleApi(HttpClient client, std::string metadata)
    : client_(std::move(client)), metadata_(std::move(metadata)) {}

std::string GoogleApi::metadata_text(const std::string& path) const {
  HttpRequest request;
  request.url = metadata_ + "/computeMetadata/v1/" + path;
  request.headers = {"Metadata-Flavor: Google"};
  return request_text(client_, request);
}

std::string GoogleApi::project() const { return metadata_text("project/project-id"); }

std::string GoogleApi::zone() const {
  const std::string path = metadata_text("instance/zone");  // projects/NUMBER/zones/ZONE
  return path.substr(path.rfind('/') + 1);
}

Json GoogleApi::ask(const std::string& url, const std::string& body) const {
  const std::string answer = metadata_text("instance/service-accounts/default/token");
  HttpRequest request;
  request.url = url;
  request.headers = {"Authorization: Bearer " + text_at(parse_json("account token", answer), {"access_token"})};
  request.body = body;
  return request_json(client_, request);
}

}  // namespace lockstep::detail
