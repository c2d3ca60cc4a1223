// The control plane of control_plane.h for tests in other languages and for a look by hand.
//
//   control_plane [--crds PATH]... [KUBE_APISERVER_FLAG...]
//
// Prints lines NAME=VALUE (url, ca, token, kubeconfig, directory), then `ready`. Reads commands
// from stdin, a line each, and answers each with `done` or `error TEXT`: stop, kill, pause,
// continue, start, compact, rotate-authority. Ends, and with it the servers, at the end of stdin.
#include <csignal>
#include <exception>
#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tests/kube/support/control_plane.h"

namespace {

using cbt::test::ControlPlane;

void Serve(ControlPlane& plane) {
  const std::map<std::string, std::function<void()>> commands = {
      {"stop", [&] { plane.StopApiServer(); }},
      {"kill", [&] { plane.StopApiServer(SIGKILL); }},
      {"pause", [&] { plane.PauseApiServer(); }},
      {"continue", [&] { plane.ContinueApiServer(); }},
      {"start", [&] { plane.StartApiServer(); }},
      {"compact", [&] { plane.Compact(); }},
      {"rotate-authority", [&] { plane.RotateAuthority(); }},
  };
  for (std::string line; std::getline(std::cin, line);) {
    const auto command = commands.find(line);
    if (command == commands.end()) {
      std::cout << "error unknown command: " << line << std::endl;
      continue;
    }
    try {
      command->second();
      std::cout << "done" << std::endl;
    } catch (const std::exception& error) {
      std::string text = error.what();
      for (char& c : text) c = c == '\n' ? ' ' : c;
      std::cout << "error " << text << std::endl;
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (!ControlPlane::Available()) {
    std::cerr << "control_plane: KUBEBUILDER_ASSETS is not set\n";
    return 2;
  }
  std::vector<std::string> crds;
  std::vector<std::string> flags;
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--crds" && i + 1 < argc) {
      crds.emplace_back(argv[++i]);
    } else {
      flags.emplace_back(argv[i]);
    }
  }
  try {
    ControlPlane plane(flags);
    for (const std::string& path : crds) plane.InstallCrds(path);
    std::cout << "url=" << plane.url() << "\nca=" << plane.ca_file()
              << "\ntoken=" << plane.admin_token() << "\nkubeconfig=" << plane.admin_kubeconfig()
              << "\nfolder=" << plane.directory() << "\nready" << std::endl;
    Serve(plane);
  } catch (const std::exception& error) {
    std::cerr << "control_plane: " << error.what() << "\n";
    return 1;
  }
  return 0;
}
