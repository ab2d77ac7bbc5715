#include <arpa/inet.h>
#include <chrono>
#include <fstream>
#include <iterator>
#include <memory>
#include <netinet/in.h>
#include <string>
#include <sys/socket.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/cluster/http.h"
#include "lockstep/cluster/resolvers/kubernetes.h"
#include "tests/cluster/child_process.h"
#include "tests/cluster/expect_error.h"
#include "tests/cluster/service_account.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;

/// Answers one request for pods over TLS, to whoever has the token. Prints its port; ends when its input does.
constexpr const char* kServer = R"(
import http.server, json, os, ssl, sys, threading
folder = sys.argv[1]
class Api(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        allowed = self.headers.get("Authorization") == "Bearer secret"
        found = self.path == "/api/v1/namespaces/team/pods?labelSelector=job-name%3Dtrain"
        pods = [{"metadata": {"name": "train-%d" % i}, "status": {"phase": "Running", "podIP": "10.0.0.%d" % i}} for i in range(2)]
        body = json.dumps({"items": pods} if allowed and found else {"message": "no"}).encode()
        self.send_response(403 if not allowed else 200 if found else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *arguments):
        pass
server = http.server.HTTPServer(("127.0.0.1", 0), Api)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(folder + "/server.crt", folder + "/server.key")
server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_port, flush=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
sys.stdin.read()
os._exit(0)
)";

std::string contents(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Makes a certificate for localhost that vouches for itself. Returns whether openssl could.
bool make_certificate(const std::string& folder, const std::string& name) {
  return ChildProcess({"sh", "-c",
                       "cd '" + folder + "' && openssl req -x509 -newkey rsa:2048 -nodes -keyout " + name +
                           ".key -out " + name +
                           ".crt -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost 2>/dev/null"})
             .wait() == 0;
}

class HttpsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!LOCKSTEP_HAS_CURL) GTEST_SKIP() << "built without libcurl";
    if (!make_certificate(folder_.path(), "server")) GTEST_SKIP() << "no openssl here";
    server_ = std::make_unique<ChildProcess>(std::vector<std::string>{"python3", "-c", kServer, folder_.path()});
    port_ = server_->read_line();
    if (port_.empty()) GTEST_SKIP() << "no python3 with ssl here";
  }

  KubernetesOptions options(const ServiceAccount& account) const {
    KubernetesOptions result;
    result.job_to_label_mapping = {{"worker", {"job-name=train"}}};
    result.api = "https://localhost:" + port_;
    result.account_folder = account.folder();
    result.variables = Environment({{"HOSTNAME", "train-1"}});
    return result;
  }

  TemporaryFolder folder_;
  std::unique_ptr<ChildProcess> server_;
  std::string port_;
};

TEST_F(HttpsTest, AsksTheApiWithTheAccountOfThePod) {
  const ServiceAccount account("team", "secret", contents(folder_.path() + "/server.crt"));
  const KubernetesClusterResolver resolver(options(account));
  EXPECT_THAT(resolver.cluster_spec().job_tasks("worker"), ElementsAre("10.0.0.0:8470", "10.0.0.1:8470"));
  EXPECT_EQ(resolver.task_id(), 1);
}

TEST_F(HttpsTest, SaysThatTheAccountMayNot) {
  const ServiceAccount account("team", "wrong", contents(folder_.path() + "/server.crt"));
  EXPECT_ERROR(KubernetesClusterResolver(options(account)), ContextError, "give the account of this machine or pod");
}

TEST_F(HttpsTest, TrustsOnlyTheGivenAuthority) {
  ASSERT_TRUE(make_certificate(folder_.path(), "other"));
  const ServiceAccount account("team", "secret", contents(folder_.path() + "/other.crt"));
  EXPECT_ERROR(KubernetesClusterResolver(options(account)), ContextError, "certificate");
}

/// Answers requests, and says what the next may do after a status of 429.
constexpr const char* kPlainServer = R"(
import http.server, os, sys, threading
class Api(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(429 if self.path == "/busy" else 200)
        self.send_header("Retry-After", "7")
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"hello")
    def log_message(self, *arguments):
        pass
server = http.server.HTTPServer(("127.0.0.1", 0), Api)
print(server.server_port, flush=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
sys.stdin.read()
os._exit(0)
)";

TEST(HttpTest, AProxyIsUsedOnlyWhereItIsAllowed) {
  if (!LOCKSTEP_HAS_CURL) GTEST_SKIP() << "built without libcurl";
  ChildProcess server({"python3", "-c", kPlainServer});
  const std::string port = server.read_line();
  if (port.empty()) GTEST_SKIP() << "no python3 here";
  HttpRequest request;
  request.url = "http://127.0.0.1:" + port + "/";
  EXPECT_EQ(http_request(request).body, "hello");
  for (const char* name : {"http_proxy", "all_proxy", "ALL_PROXY"}) {
    ::setenv(name, "http://127.0.0.1:9", 1);  // nobody listens there
    request.use_proxy = false;
    EXPECT_EQ(http_request(request).body, "hello") << name;
    request.use_proxy = true;
    EXPECT_ERROR(http_request(request), ContextError, request.url);
    ::unsetenv(name);
  }
}

TEST(HttpTest, SaysHowLongTheServiceAsksToWait) {
  if (!LOCKSTEP_HAS_CURL) GTEST_SKIP() << "built without libcurl";
  ChildProcess server({"python3", "-c", kPlainServer});
  const std::string port = server.read_line();
  if (port.empty()) GTEST_SKIP() << "no python3 here";
  HttpRequest request;
  request.url = "http://127.0.0.1:" + port + "/busy";
  const HttpResponse response = http_request(request);
  EXPECT_EQ(response.status, 429);
  EXPECT_EQ(response.retry_after, std::chrono::seconds(7));
}

TEST(HttpTest, DoesNotWaitForever) {
  if (!LOCKSTEP_HAS_CURL) GTEST_SKIP() << "built without libcurl";
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(listener, 1), 0);
  ASSERT_EQ(::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
  HttpRequest request;
  request.url = "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port)) + "/";
  request.timeout = std::chrono::seconds(1);
  EXPECT_ERROR(http_request(request), ContextError, request.url);
  ::close(listener);
}

}  // namespace
}  // namespace lockstep
