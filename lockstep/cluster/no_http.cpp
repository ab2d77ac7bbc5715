#include "lockstep/base/error.h"
#include "lockstep/cluster/http.h"

namespace lockstep {

HttpResponse http_request(const HttpRequest& request) {
  LOCKSTEP_THROW(c10::NotImplementedError, "[http_request] lockstep was built without libcurl: url=", request.url,
                 "; install libcurl4-openssl-dev and build again");
}

}  // namespace lockstep
