#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <unistd.h>
#include <vector>

// The main function of targets that Clang cannot compile: random and changed inputs without libFuzzer, with its
// options: NAME_fuzz -max_total_time=SECONDS -artifact_prefix=PREFIX FOLDER... or NAME_fuzz FILE..., which runs the
// files only.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

namespace fs = std::filesystem;
using Input = std::vector<uint8_t>;

constexpr size_t kMostBytes = 256;

/// The input that is running, and where it goes if the target falls over.
Input current;
std::string kept_path;

extern "C" void keep_current_input(int signal) {
  const int file = ::open(kept_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (file >= 0 && ::write(file, current.data(), current.size()) >= 0) ::close(file);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

Input read_input(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

Input changed(Input input, std::mt19937_64& random) {
  const auto below = [&](size_t bound) { return static_cast<size_t>(random() % bound); };
  for (size_t changes = 1 + below(8); changes > 0; --changes) {
    const auto byte = static_cast<uint8_t>(random());
    if (input.empty() || below(4) == 0) {
      input.insert(input.begin() + static_cast<int64_t>(below(input.size() + 1)), byte);
    } else if (below(4) == 0) {
      input.erase(input.begin() + static_cast<int64_t>(below(input.size())));
    } else {
      input[below(input.size())] = byte;
    }
  }
  return input;
}

Input any_input(std::mt19937_64& random) {
  Input input(random() % kMostBytes);
  for (uint8_t& byte : input) byte = static_cast<uint8_t>(random());
  return input;
}

void run(Input input) {
  current = std::move(input);
  LLVMFuzzerTestOneInput(current.data(), current.size());
}

}  // namespace

int main(int argc, char** argv) {
  double seconds = 0;
  std::string prefix;
  std::vector<Input> seeds;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word.starts_with("-max_total_time=")) seconds = std::stod(word.substr(word.find('=') + 1));
    if (word.starts_with("-artifact_prefix=")) prefix = word.substr(word.find('=') + 1);
    if (word.starts_with("-")) continue;
    if (fs::is_regular_file(word)) seeds.push_back(read_input(word));
    if (!fs::is_directory(word)) continue;
    for (const auto& entry : fs::directory_iterator(word)) seeds.push_back(read_input(entry.path()));
  }
  const uint64_t seed = std::random_device{}();
  kept_path = prefix + "crash-" + std::to_string(seed);
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGALRM}) std::signal(signal, keep_current_input);
  std::mt19937_64 random(seed);
  for (const Input& input : seeds) run(input);
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  uint64_t runs = seeds.size();
  for (; std::chrono::steady_clock::now() < end; ++runs) {
    ::alarm(10);  // an input that takes longer is a finding
    run(seeds.empty() || random() % 2 == 0 ? any_input(random) : changed(seeds[random() % seeds.size()], random));
  }
  ::alarm(0);
  std::printf("Done %llu runs in %g second(s)\n", static_cast<unsigned long long>(runs), seconds);
  return 0;
}
