// elector KUBECONFIG NAMESPACE LEASE IDENTITY: takes part in an election until it is killed, and
// prints `started` and `stopped`.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <iostream>
#include <utility>

#include "cbt/kube/client.h"
#include "cbt/kube/config.h"
#include "cbt/kube/controller.h"
#include "tests/support/status.h"

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  using cbt::test::ValueOf;
  const auto client =
      ValueOf(cbt::kube::Client::Create(ValueOf(cbt::kube::LoadKubeconfig({.files = {argv[1]}}))));
  cbt::kube::LeaderElectionOptions options;
  options.name_space = argv[2];
  options.name = argv[3];
  options.identity = argv[4];
  options.lease_duration = std::chrono::seconds(3);
  options.renew_deadline = std::chrono::seconds(2);
  options.retry_period = std::chrono::milliseconds(300);
  options.on_started_leading = [] { std::cout << "started" << std::endl; };
  options.on_stopped_leading = [] { std::cout << "stopped" << std::endl; };
  const auto elector = ValueOf(cbt::kube::LeaderElector::Create(*client, std::move(options)));
  for (;;) pause();
}
